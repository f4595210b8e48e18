package search

import (
	"context"
	"testing"
	"time"
)

// A catch-up rests after a page during which the server has written much, and for no other reason.
func TestACatchUpRestsWhileTheServerWrites(t *testing.T) {
	t.Parallel()
	now, written := time.Unix(0, 0), uint64(7000)
	for _, c := range []struct {
		writes uint64
		took   time.Duration
		rest   time.Duration
	}{
		{0, time.Second, 0}, {99, time.Second, 0}, {100, time.Second, 1500 * time.Millisecond}, {5000, time.Second, 1500 * time.Millisecond},
		{4, 50 * time.Millisecond, 0}, {5, 50 * time.Millisecond, 75 * time.Millisecond}, {300, 4 * time.Second, 0}, {9000, time.Minute, 5 * time.Second},
	} {
		p := pacer{written: func() uint64 { return written }, now: func() time.Time { return now }}
		p.begin()
		now, written = now.Add(c.took), written+c.writes
		if got := p.rest(); got != c.rest {
			t.Errorf("%d writes in %v: it rests %v, want %v", c.writes, c.took, got, c.rest)
		}
	}
	p := pacer{now: func() time.Time { return now }}
	p.begin()
	if got := p.rest(); got != 0 {
		t.Errorf("without a server it rests %v", got)
	}
}

// A rest ends with the catch-up.
func TestARestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Millisecond, cancel)
	done := make(chan struct{})
	go func() { sleep(ctx, time.Hour); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it sleeps on")
	}
}
