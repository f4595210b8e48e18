package ws_test

import (
	"testing"
	"time"

	"relay/db/scratch"
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
	scratch.Eventually(t, patience, what, is)
}

// drainLong has a relay wait for as long as a client may need to do something after the relay's
// close frame.
func drainLong(c *ws.Config) {
	c.WriteTimeout = patience
	c.SetDrain(patience)
}
