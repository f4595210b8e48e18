package ws_test

import (
	"testing"
	"time"

	"relay/ws"
)

// inTime has a test done, and done again with longer times if this machine was too slow for it. do
// returns what is wrong, and whether the machine was so slow that a right program may come to that.
func inTime(t *testing.T, scales []time.Duration, do func(t *testing.T, scale time.Duration) (err error, late bool)) {
	t.Helper()
	for _, scale := range scales {
		err, late := do(t, scale)
		if err == nil {
			return
		}
		if !late {
			t.Fatal(err)
		}
		t.Logf("again, since this machine was too slow for %v: %v", scale, err)
	}
	t.Fatal("this machine was too slow each time")
}

// seconds are the usual scales.
var seconds = []time.Duration{time.Second, 4 * time.Second, 16 * time.Second}

// lives are how long a client may be silent in the tests of dead peers. A machine may be too slow
// for the first ones: it may have a living peer say nothing for two seconds.
var lives = []time.Duration{2 * time.Second, 8 * time.Second, 30 * time.Second}

// drainLong has a relay wait for as long as a client may need to do something after the relay's
// close frame.
func drainLong(c *ws.Config) {
	c.WriteTimeout = patience
	c.SetDrain(patience)
}
