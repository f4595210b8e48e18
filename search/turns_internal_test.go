package search

import (
	"testing"
	"testing/synctest"
	"time"
)

// A caller searches in half of the places, and has a bound on how many of its searches wait.
// Package turn shares out the turns.
func TestTurnsOfACallerAreBounded(t *testing.T) {
	for places, share := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 9: 5} {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns(Options{Concurrency: places, Wait: time.Minute})
			take := func() error { return turns.Take(t.Context(), "greedy^acme", maxWaiting) }
			for range share {
				if err := take(); err != nil {
					t.Fatal(err)
				}
			}
			ended := make(chan error, maxWaiting)
			for range maxWaiting {
				go func() { ended <- take() }()
			}
			synctest.Wait()
			if len(ended) > 0 {
				t.Errorf("%d places: a search beyond the share of %d got %v", places, share, <-ended)
			}
			if err := take(); err != error(ErrCallerBusy) {
				t.Errorf("one more got %v", err)
			}
			alice := make(chan error, 1)
			go func() { alice <- turns.Take(t.Context(), "alice^acme", maxWaiting) }()
			synctest.Wait()
			if got := len(alice) == 1; got != (share < places) {
				t.Errorf("%d places: whether another caller's search runs: %v", places, got)
			}
			if err := <-alice; share == places && err != error(ErrBusy) {
				t.Errorf("another caller got %v", err)
			}
			for range maxWaiting {
				if err := <-ended; err != error(ErrCallerBusy) {
					t.Errorf("after its time a search got %v", err)
				}
			}
		})
	}
}
