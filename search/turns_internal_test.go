package search

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
)

// Callers get their turns one after the other, however many searches each has
// waiting, and one never has more than half of the places.
func TestTurnsGoRoundTheCallers(t *testing.T) {
	for most, want := range map[int]string{ // the searches that run at once, then the ones that follow as one after the other ends
		1: "a abcabcaaa",
		2: "ab abcacaaa",
		3: "aab abcacaa",
		4: "aabb acacaa",
	} {
		turns := newTurns(most)
		type search struct {
			caller relay.Address
			turn   chan struct{}
		}
		var running, waiting []search
		got := ""
		for name := range strings.SplitSeq("aaaaaabbcc", "") {
			s := search{caller: relay.Address(name)}
			var err error
			if s.turn, err = turns.enter(s.caller); err != nil {
				t.Fatal(err)
			}
			if s.turn != nil {
				waiting = append(waiting, s)
				continue
			}
			running = append(running, s)
			got += name
		}
		got += " "
		for len(running) > 0 {
			turns.give(running[0].caller)
			running = running[1:]
			left := waiting[:0]
			for _, s := range waiting {
				select {
				case <-s.turn:
					running = append(running, s)
					got += string(s.caller)
				default:
					left = append(left, s)
				}
			}
			waiting = left
		}
		if got != want || len(turns.callers)+len(turns.queue)+turns.running+len(waiting) > 0 {
			t.Errorf("%d at once: %q, want %q; %d wait for ever, left are %d callers, %d in line, %d places taken",
				most, got, want, len(waiting), len(turns.callers), len(turns.queue), turns.running)
		}
	}
}

func TestTurnsHaveABoundOnWaiting(t *testing.T) {
	turns := newTurns(1)
	for range 1 + maxWaiting {
		if _, err := turns.enter("greedy^acme"); err != nil {
			t.Fatal(err)
		}
	}
	if err := turns.take(t.Context(), "greedy^acme", time.Minute); err != error(ErrCallerBusy) {
		t.Errorf("one more: %v", err)
	}
	if _, err := turns.enter("alice^acme"); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// Some searches get their turn, others give up: no place is lost and none is given twice.
func TestTurnsUnderLoad(t *testing.T) {
	turns := newTurns(3)
	var all sync.WaitGroup
	var running, ran atomic.Int64
	for i := range 16 {
		all.Go(func() {
			address := relay.Address(strconv.Itoa(i % 5))
			for range 500 {
				ctx, cancel := context.WithCancel(context.Background())
				if rand.IntN(4) == 0 {
					cancel()
				}
				if err := turns.take(ctx, address, time.Duration(rand.IntN(100))*time.Microsecond); err == nil {
					if running.Add(1) > 3 {
						t.Error("more than three at once")
					}
					ran.Add(1)
					running.Add(-1)
					turns.give(address)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if ran.Load() == 0 || len(turns.callers)+len(turns.queue)+turns.running > 0 {
		t.Errorf("%d ran; left are %d callers, %d in line, %d places taken", ran.Load(), len(turns.callers), len(turns.queue), turns.running)
	}
}
