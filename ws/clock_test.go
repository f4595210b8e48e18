package ws_test

import "time"

// now is the time of the relay: it goes on by itself, and with advance.
func (r *testRelay) now() time.Time { return time.Now().Add(time.Duration(r.past.Load())) }

// advance makes it later, for keys and messages; the network keeps real time.
func (r *testRelay) advance(by time.Duration) { r.past.Add(int64(by)) }

// soon is when something expires that the test then advances beyond. Until then
// there is time for all that must come before, on the busiest machine.
func (r *testRelay) soon() time.Time { return r.now().Add(time.Minute) }
