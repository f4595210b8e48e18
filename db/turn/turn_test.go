package turn_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"relay/db/measure"
	"relay/db/turn"
)

// refusal is the error of a refusal: how much of the owner's own was in the way.
type refusal int

func (r refusal) Error() string { return fmt.Sprintf("refused, with %d of its own", int(r)) }

func refuse(own int) error { return refusal(own) }

// wish is a turn that a test takes, or waits for.
type wish struct {
	of    string
	leave context.CancelFunc
	ended chan error // has the outcome of Take
	since map[string]int
}

// crowd takes turns at a Stile, in a bubble of synctest, and checks what it sees.
type crowd struct {
	*testing.T
	*turn.Stile[string]
	waiting, taken []*wish // the oldest first
	order          string  // whose turns began
}

// take asks for a turn, and waits until it has begun, has been refused, or waits.
func (c *crowd) take(of string, line int) *wish {
	ctx, cancel := context.WithCancel(c.Context())
	w := &wish{of: of, leave: cancel, ended: make(chan error, 1), since: map[string]int{}}
	go func() { w.ended <- c.Take(ctx, of, line) }()
	c.waiting = append(c.waiting, w)
	c.settle()
	return w
}

// give ends a turn.
func (c *crowd) give(i int) {
	of := c.taken[i].of
	c.taken = slices.Delete(c.taken, i, i+1)
	c.Give(of)
	c.settle()
}

// settle notes which turns have begun, and checks that they are due: nobody has more than its
// share, no place is free for one who waits, and an owner that waits below its share sees at
// most one turn of each other owner begin before its own.
func (c *crowd) settle() {
	c.Helper()
	synctest.Wait()
	var began []*wish
	c.waiting = slices.DeleteFunc(c.waiting, func(w *wish) bool {
		select {
		case err := <-w.ended:
			if err == nil {
				began = append(began, w)
			}
			return true
		default:
			return false
		}
	})
	for _, b := range began {
		c.order += b.of
		for _, w := range c.waiting {
			if w.since[b.of]++; w.of != b.of && c.count(c.taken, w.of) < c.Share && w.since[b.of] > 1 && c.first(w) {
				c.Errorf("%s waits, and %s begins its turn number %d meanwhile: %s", w.of, b.of, w.since[b.of], c.order)
			}
			if w.of == b.of {
				clear(w.since) // the next one of this owner begins to wait now
			}
		}
		c.taken = append(c.taken, b)
	}
	for _, w := range c.waiting {
		own := c.count(c.taken, w.of)
		if own >= c.Share {
			clear(w.since)
		}
		if len(c.taken) < c.Places && (own < c.Share || w.of == "") {
			c.Fatalf("%q waits, while %d of %d places are taken: %s", w.of, len(c.taken), c.Places, c.order)
		}
	}
	for _, w := range c.taken {
		if n := c.count(c.taken, w.of); n > c.Share && w.of != "" || len(c.taken) > c.Places {
			c.Fatalf("%s has %d turns of %d", w.of, n, len(c.taken))
		}
	}
}

// first reports whether w is the oldest waiting turn of its owner.
func (c *crowd) first(w *wish) bool {
	return w == c.waiting[slices.IndexFunc(c.waiting, func(other *wish) bool { return other.of == w.of })]
}

func (c *crowd) count(list []*wish, of string) (n int) {
	for _, w := range list {
		if w.of == of {
			n++
		}
	}
	return n
}

// Owners get their turns one after the other, however many each waits for. None has more
// than its share.
func TestOwnersTakeTurns(t *testing.T) {
	for _, c := range []struct {
		places, share int
		wishes        string
		order         string // the turns that begin at once, and those that follow as one after the other ends
	}{
		{1, 1, "aaaaaabbcc", "a bcabcaaaa"},
		{2, 1, "aaaaaabbcc", "ab cabcaaaa"},
		{3, 2, "aaaaaabbcc", "aab bcacaaa"},
		{4, 2, "aaaaaabbcc", "aabb cacaaa"},
		{2, 1, "aaaabcb", "ab cabaa"},
		{turn.Unbounded, 2, "aaaabbb", "aabb aab"},
	} {
		synctest.Test(t, func(t *testing.T) {
			crowd := &crowd{T: t, Stile: turn.NewStile[string](turn.Options{Places: c.places, Share: c.share})}
			for of := range strings.SplitSeq(c.wishes, "") {
				crowd.take(of, turn.Unbounded)
			}
			crowd.order += " "
			for len(crowd.taken) > 0 {
				crowd.give(0)
			}
			if crowd.order != c.order || len(crowd.waiting) > 0 {
				t.Errorf("%d places, %d for each: %q, want %q; %d wait forever", c.places, c.share, crowd.order, c.order, len(crowd.waiting))
			}
		})
	}
}

// Whatever owners do, turns are fair, and no place is lost.
func TestTurnsAreFair(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			share := 1 + random.IntN(3)
			c := &crowd{T: t, Stile: turn.NewStile[string](turn.Options{Places: share + random.IntN(3), Share: share})}
			for range 150 {
				switch n := random.IntN(10); {
				case n < 5:
					c.take(string("aaaabbcd"[random.IntN(8)]), turn.Unbounded)
				case n < 9 && len(c.taken) > 0:
					c.give(random.IntN(len(c.taken)))
				case len(c.waiting) > 0:
					c.waiting[random.IntN(len(c.waiting))].leave()
					c.settle()
				}
			}
			for len(c.taken) > 0 {
				c.give(0)
			}
			if len(c.waiting)+c.Kept() > 0 {
				t.Errorf("seed %d: %d wait forever, %d are remembered", seed, len(c.waiting), c.Kept())
			}
			if t.Failed() {
				t.Fatalf("seed %d, %d places, %d for each", seed, c.Places, c.Share)
			}
		})
	}
}

// The house has no share, but takes its turn.
func TestTheHouseMayTakeAllPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{T: t, Stile: turn.NewStile[string](turn.Options{Places: 3, Share: 1})}
		for _, of := range []string{"", "", "", "", "a", "a", "b", ""} {
			c.take(of, turn.Unbounded)
		}
		if len(c.taken) != 3 {
			t.Errorf("the house has %d of 3 places", len(c.taken))
		}
		for len(c.taken) > 0 {
			c.give(0)
		}
		if c.order != "aba" || len(c.waiting) > 0 {
			t.Errorf("the turns came in the order %q; %d wait forever", c.order, len(c.waiting))
		}
	})
}

// Refused is told how much of its own an owner waits behind. Waits counts the turns that
// could not begin at once, the vain ones as well.
func TestARefusalTellsWhoseTurnsAreInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := turn.NewStile[string](turn.Options{Places: 2, Share: 1, Patience: time.Second, Refused: refuse, Waits: measure.NewDurations()})
		take := func(of string, line int) error { return s.Take(t.Context(), of, line) }
		if err := errors.Join(take("a", 0), take("b", 0)); err != nil {
			t.Fatal("a place was free, and they got", err)
		}
		for _, w := range []struct {
			of   string
			line int
			want refusal
		}{{"a", 0, 0}, {"a", 1, 1}, {"c", 1, 0}} {
			began := time.Now()
			if err := take(w.of, w.line); err != error(w.want) {
				t.Errorf("%s in a line of %d got %v, want %v", w.of, w.line, err, w.want)
			}
			if took := time.Since(began); took != time.Duration(w.line)*time.Second {
				t.Errorf("%s in a line of %d waited for %v", w.of, w.line, took)
			}
		}
		ended := make(chan error, 2)
		go func() { ended <- take("c", 2) }()
		go func() { ended <- take("c", 2) }()
		synctest.Wait()
		if n := s.Waiting("c"); n != 2 {
			t.Errorf("%d turns are waited for", n)
		}
		if err := take("c", 2); err != error(refusal(2)) {
			t.Errorf("a third one in a line of 2 got %v", err)
		}
		got := []error{<-ended, <-ended}
		if !slices.Contains(got, error(refusal(0))) {
			t.Errorf("after their time they got %v", got)
		}
		if w := s.Waits.Snapshot(); w.Count != 4 || w.Sum != 4 {
			t.Errorf("%d waits were counted, of %v seconds", w.Count, w.Sum)
		}
	})
}

// Waits end with the context of the caller, and all of them when the Stile is closed.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan struct{})
		s := turn.NewStile[string](turn.Options{Places: 1, Share: 1, Closed: closed})
		if err := s.Take(t.Context(), "a", 0); err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		left, rest := make(chan error, 1), make(chan error, 2)
		go func() { left <- s.Take(gone, "b", 1) }()
		synctest.Wait()
		go func() { rest <- s.Take(t.Context(), "a", 9) }()
		go func() { rest <- s.Take(t.Context(), "b", 9) }()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(closed)
		for range 2 {
			if err := <-rest; err != turn.ErrClosed {
				t.Error(err)
			}
		}
		s.Give("a")
		if err := s.Take(t.Context(), "b", 0); err != nil {
			t.Error("a place is free, and it got", err)
		}
	})
}

// Hold waits for the running turns. Others wait until Release.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{T: t, Stile: turn.NewStile[string](turn.Options{Places: 2, Share: 2})}
		c.take("a", 0)
		if c.Hold(time.After(time.Second)) {
			t.Error("a turn goes on")
		}
		held := make(chan bool)
		go func() { held <- c.Hold(nil) }()
		ended := make(chan error, 3)
		for range 3 {
			go func() { ended <- c.Take(t.Context(), "b", 3) }()
		}
		synctest.Wait()
		c.Give("a")
		if !<-held {
			t.Error("no turn goes on")
		}
		synctest.Wait()
		if len(ended) > 0 || c.Waiting("b") != 3 {
			t.Errorf("%d turns have begun", len(ended))
		}
		c.Release()
		synctest.Wait()
		if len(ended) != 2 {
			t.Errorf("%d of 2 places are taken", len(ended))
		}
		c.Give("b")
		c.Give("b")
		c.Give("b")
		if err := errors.Join(<-ended, <-ended, <-ended); err != nil || !c.Hold(nil) {
			t.Error(err)
		}
	})
}

// Some turns begin, others are given up, in real time: no place is lost, and none is taken
// twice.
func TestTurnsUnderLoad(t *testing.T) {
	s := turn.NewStile[int](turn.Options{Places: 3, Share: 2, Patience: 50 * time.Microsecond, Refused: refuse})
	var all sync.WaitGroup
	var running, ran atomic.Int64
	for i := range 16 {
		all.Go(func() {
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					cancel()
				}
				if s.Take(ctx, 1+i%5, turn.Unbounded) == nil {
					if running.Add(1) > 3 {
						t.Error("more than three at once")
					}
					ran.Add(1)
					running.Add(-1)
					s.Give(1 + i%5)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if ran.Load() == 0 || s.Kept() > 0 || !s.Hold(time.After(time.Minute)) {
		t.Errorf("%d ran; %d are remembered, or places are taken forever", ran.Load(), s.Kept())
	}
}
