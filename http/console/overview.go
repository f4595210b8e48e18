package console

import (
	"context"
	"sync"
	"time"

	"relay/db/look/survey"
)

const (
	lookShare  = 30                    // an Overview is made again after so many times its own length
	lookOften  = 50 * time.Millisecond // but not sooner than this
	lookSeldom = time.Minute           // nor later, if a page asks
	lookWait   = 80 * time.Millisecond // how long a page waits for a new one, if it can have one
	lookOld    = 15 * time.Second      // that is no older
)

// overviews has the latest Overview, for all pages. It is safe for concurrent use.
type overviews struct {
	mu   sync.Mutex
	last survey.Overview
	at   time.Time     // when it was made; zero: never
	took time.Duration // how long that took
	next *looking      // one that is being made; nil: none is
}

// looking is an Overview that is being made. Its fields are set when done is closed.
type looking struct {
	done chan struct{}
	made survey.Overview
	err  error
}

// overview returns what waits for whom: as of a moment ago, or of some seconds ago if it takes
// long. One is made at a time, and only if a page asks.
func (c *Console) overview(ctx context.Context) (survey.Overview, error) {
	l := &c.overviews
	l.mu.Lock()
	last, old := l.last, time.Since(l.at)
	if !l.at.IsZero() && old < min(max(lookOften, lookShare*l.took), lookSeldom) {
		l.mu.Unlock()
		return last, nil
	}
	n := l.next
	if n == nil && c.begin() {
		n = &looking{done: make(chan struct{})}
		l.next = n
		go c.makeOverview(n)
	}
	l.mu.Unlock()
	if n == nil {
		return last, context.Canceled // the console closes
	}
	var late <-chan time.Time
	if old < lookOld {
		timer := time.NewTimer(lookWait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-n.done:
		return n.made, n.err
	case <-late:
		return last, nil
	case <-ctx.Done():
		return last, ctx.Err()
	}
}

// makeOverview makes an Overview, and ends the work that begin has counted.
func (c *Console) makeOverview(n *looking) {
	defer c.work.Done()
	began := time.Now()
	n.made, n.err = c.config.Store.Overview(c.ctx, c.config.Now().Add(-lateAfter))
	l := &c.overviews
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next = nil; n.err == nil {
		l.last, l.at, l.took = n.made, time.Now(), time.Since(began)
	}
	close(n.done)
}

// pendingKnown returns how many messages were pending a short time ago; -1 if no page has asked.
func (c *Console) pendingKnown() int {
	l := &c.overviews
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || time.Since(l.at) > measured || l.last.More {
		return -1
	}
	return l.last.Pending
}
