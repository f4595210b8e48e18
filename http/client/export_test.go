package client

import "time"

// WithClock makes a listener look at another clock, and ask more often where there are no
// WebSockets.
func WithClock(o ListenOptions, now func() time.Time, poll time.Duration) ListenOptions {
	o.now, o.pollWait = now, poll
	return o
}
