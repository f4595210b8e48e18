package ws_test

import (
	"testing"
	"time"

	"relay/ws"
)

// now is the time of the relay: it continues on its own, and with advance.
func (r *testRelay) now() time.Time { return time.Now().Add(time.Duration(r.past.Load())) }

// advance makes it later, for keys and messages; the network keeps real time.
func (r *testRelay) advance(by time.Duration) { r.past.Add(int64(by)) }

// soon is when something expires that the test then advances beyond. Until then
// there is time for all that must come before, on the busiest machine.
func (r *testRelay) soon() time.Time { return r.now().Add(time.Minute) }

// eventually waits for a condition that nothing announces.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	began := time.Now()
	for end := began.Add(patience); !is(); time.Sleep(untilNextLook(time.Since(began))) {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// untilNextLook returns how long to wait before one looks again: the longer the wait so far, the longer.
func untilNextLook(waited time.Duration) time.Duration {
	return min(max(waited/10, 5*time.Millisecond), 100*time.Millisecond)
}

// drainLong has a relay wait for as long as a client may need to do something after the relay's
// close frame.
func drainLong(c *ws.Config) {
	c.WriteTimeout = patience
	c.SetDrain(patience)
}
