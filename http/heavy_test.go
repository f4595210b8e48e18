package http

import (
	"context"
	"errors"
	"testing"
)

// A Mecha's large bodies get their turns one after the other, those of another at once.
func TestLargeBodiesOfAMechaWaitInLine(t *testing.T) {
	h := newHeavy()
	for range h.each {
		if h.enter(1) != nil {
			t.Fatal("it waits for a place that is free")
		}
	}
	first, second := h.enter(1), h.enter(1)
	if first == nil || second == nil {
		t.Fatal("it has more than its share")
	}
	if h.enter(2) != nil {
		t.Error("another Mecha waits")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.take(gone, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	h.give(1)
	<-first // its turn
	select {
	case <-second:
		t.Error("the second one has its turn, too")
	default:
	}
	h.leave(1, first) // which came in the same moment
	<-second
	for range h.each {
		h.give(1)
	}
	h.give(2)
	if len(h.of) > 0 {
		t.Errorf("%d Mechas are left", len(h.of))
	}
}
