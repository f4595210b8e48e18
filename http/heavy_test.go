package http

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// A Mecha's large bodies get their turns one after the other, those of another Mecha at
// once. A body whose client has gone leaves the line.
func TestLargeBodiesOfAMechaWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeavy()
		const waiting = 5
		bodies := h.each + waiting
		turn := make(chan error, bodies)
		for range bodies {
			go func() { turn <- h.take(t.Context(), 1) }()
		}
		gone, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		synctest.Wait()
		go func() { left <- h.take(gone, 1) }()
		if err := h.take(t.Context(), 2); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for ended := range bodies {
			synctest.Wait()
			if want := min(h.each, bodies-ended); len(turn) != want {
				t.Fatalf("%d bodies are worked on, want %d", len(turn), want)
			}
			if err := <-turn; err != nil {
				t.Fatal(err)
			}
			h.give(1)
		}
		h.give(2)
		if len(h.of) > 0 {
			t.Errorf("%d Mechas are left", len(h.of))
		}
	})
}
