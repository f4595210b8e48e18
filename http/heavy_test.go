package http

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"relay/db/turn"
)

// A Mecha's large bodies get their turns one after the other, those of another Mecha at
// once. A body whose client has gone leaves the line.
func TestLargeBodiesOfAMechaWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLargeBodies()
		const waiting = 5
		bodies := h.Share + waiting
		began := make(chan error, bodies)
		for range bodies {
			go func() { began <- h.Take(t.Context(), 1, turn.Unbounded) }()
		}
		gone, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		synctest.Wait()
		go func() { left <- h.Take(gone, 1, turn.Unbounded) }()
		if err := h.Take(t.Context(), 2, turn.Unbounded); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for ended := range bodies {
			synctest.Wait()
			if want := min(h.Share, bodies-ended); len(began) != want {
				t.Fatalf("%d bodies are worked on, want %d", len(began), want)
			}
			if err := <-began; err != nil {
				t.Fatal(err)
			}
			h.Give(1)
		}
		h.Give(2)
		if !h.Hold(nil) {
			t.Error("places are taken forever")
		}
	})
}
