package search

import (
	"context"
	"slices"
	"sync"
	"time"

	"relay/db/measure"
	"relay/db/relay"
)

// turns bounds how many searches run at once, and shares the places out fairly: callers
// that wait take turns, however many searches each of them has waiting. One caller has
// at most half of the places, so that its heavy searches do not delay the light ones of
// others. It is safe for concurrent use.
type turns struct {
	most int // searches that run at once
	each int // of these, searches of one caller
	// waits is how long searches waited that had to, and ran or gave up.
	waits *measure.Histogram

	mu      sync.Mutex
	running int
	callers map[relay.Address]*caller // the callers with searches that run or wait
	queue   []*caller                 // the callers with searches that wait, in the order of their turns
}

// caller is a Mecha that searches.
type caller struct {
	running int
	waiting []chan struct{} // the oldest first; each is closed when its search may run
}

// maxWaiting is how many searches of one caller may wait. It bounds memory; turns
// are fair without it.
const maxWaiting = 64

var (
	// ErrBusy is returned by a search that did not run because too many searches of
	// other callers were running.
	ErrBusy = &relay.Error{Code: relay.Overloaded, Detail: "too many searches at once", RetryAfter: time.Second}
	// ErrCallerBusy is returned by a search that did not run because of other searches
	// of its caller.
	ErrCallerBusy = &relay.Error{Code: relay.RateLimited, Detail: "too many searches of this Mecha at once", RetryAfter: time.Second}
)

func newTurns(most int) *turns {
	return &turns{most: most, each: (most + 1) / 2, callers: map[relay.Address]*caller{}}
}

// take waits until a search of the caller may run, for wait at most. It fails with
// ErrBusy, ErrCallerBusy or ctx's error. After nil, the caller must call give.
func (t *turns) take(ctx context.Context, address relay.Address, wait time.Duration) error {
	turn, err := t.enter(address)
	if turn == nil {
		return err
	}
	began := time.Now()
	defer func() { t.waits.Observe(time.Since(began)) }()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-turn:
		return nil
	case <-timer.C:
		return t.leave(address, turn, nil)
	case <-ctx.Done():
		return t.leave(address, turn, ctx.Err())
	}
}

// enter takes a place, or waits in line: then turn is closed when the place is taken.
func (t *turns) enter(address relay.Address) (turn chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.callers[address]
	if c == nil {
		c = &caller{}
		t.callers[address] = c
	}
	switch {
	case len(c.waiting) >= maxWaiting:
		return nil, ErrCallerBusy
	case len(c.waiting) == 0 && c.running < t.each && t.running < t.most:
		c.running++
		t.running++
		return nil, nil
	case len(c.waiting) == 0:
		t.queue = append(t.queue, c)
	}
	turn = make(chan struct{})
	c.waiting = append(c.waiting, turn)
	return turn, nil
}

// leave gives up a place in line. It returns err, or if that is nil, the reason why no
// turn has come. If the turn has come meanwhile, it returns nil.
func (t *turns) leave(address relay.Address, turn chan struct{}, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.callers[address]
	i := slices.Index(c.waiting, turn)
	switch {
	case i < 0:
		return nil
	case err != nil:
	case i > 0 || c.running > 0:
		err = ErrCallerBusy
	default:
		err = ErrBusy
	}
	if c.waiting = slices.Delete(c.waiting, i, i+1); len(c.waiting) == 0 {
		q := slices.Index(t.queue, c)
		t.queue = slices.Delete(t.queue, q, q+1)
	}
	t.forget(address, c)
	return err
}

// give ends a search of the caller, and gives its place to the next in turn.
func (t *turns) give(address relay.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.callers[address]
	c.running--
	t.running--
	for i := 0; i < len(t.queue) && t.running < t.most; {
		next := t.queue[i]
		if next.running == t.each {
			i++
			continue
		}
		close(next.waiting[0])
		next.waiting = next.waiting[1:]
		next.running++
		t.running++
		t.queue = slices.Delete(t.queue, i, i+1)
		if len(next.waiting) > 0 {
			t.queue = append(t.queue, next)
		}
	}
	t.forget(address, c)
}

// forget removes a caller without searches. t.mu is held.
func (t *turns) forget(address relay.Address, c *caller) {
	if c.running == 0 && len(c.waiting) == 0 {
		delete(t.callers, address)
	}
}
