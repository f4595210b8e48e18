package search

import (
	"context"
	"time"
)

// While the index of a running server catches up with many entries, it rests after each page if
// the server writes meanwhile. So messages keep most of the processors, and the catch-up takes
// longer.
const (
	busyWrites = 100             // a second; with fewer, messages do not need the processors
	restFor    = 1.5             // times as long as the page took
	maxRest    = 5 * time.Second // even if a page took very long, as on a hanging disk
)

// A pacer decides how long a catch-up pauses. It is not safe for concurrent use.
type pacer struct {
	written func() uint64 // how many writes the server has made; nil without a server, which means no pauses
	now     func() time.Time

	began  time.Time // of the page
	before uint64    // written, when the page began
}

// begin notes the begin of a page.
func (p *pacer) begin() {
	if p.written != nil {
		p.began, p.before = p.now(), p.written()
	}
}

// rest returns how long the catch-up pauses after the page.
func (p *pacer) rest() time.Duration {
	if p.written == nil {
		return 0
	}
	took := p.now().Sub(p.began)
	if float64(p.written()-p.before) < busyWrites*took.Seconds() {
		return 0
	}
	return min(time.Duration(restFor*float64(took)), maxRest)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
