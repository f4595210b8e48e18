package http

import (
	"context"
	"runtime"
	"sync"
	"time"

	"relay/db/measure"
	"relay/db/relay"
)

// heavyBody is the length of a body, in bytes, above which the work on it (signatures,
// hashes, JSON) takes so much longer than a small request that a Mecha gets only a share
// of the processors for it.
const heavyBody = 64 << 10

// heavy limits how many large bodies of one Mecha are worked on at once, to half of the
// processors. The others of that Mecha wait in line, so that requests of other Mechas
// find a processor. It is safe for concurrent use.
type heavy struct {
	each  int
	waits *measure.Histogram // of bodies that had to

	mu sync.Mutex
	of map[relay.MechaNumber]*heavyLine // those with bodies that are worked on
}

// heavyLine is a Mecha's large bodies.
type heavyLine struct {
	running int
	waiting []chan struct{} // the oldest first; each is closed when its turn has come
}

func newHeavy() *heavy {
	return &heavy{each: max(1, runtime.GOMAXPROCS(0)/2), of: map[relay.MechaNumber]*heavyLine{}}
}

// take waits for the turn of a body, or until ctx ends; then it returns the error of
// ctx. After nil, give must follow. The memory for the bodies bounds how many wait.
func (h *heavy) take(ctx context.Context, m relay.MechaNumber) error {
	turn := h.enter(m)
	if turn == nil {
		return nil
	}
	began := time.Now()
	defer func() { h.waits.Observe(time.Since(began)) }()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		h.leave(m, turn)
		return ctx.Err()
	}
}

// enter takes a turn, or a place in line: then the channel is closed at the turn.
func (h *heavy) enter(m relay.MechaNumber) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.of[m]
	if l == nil {
		l = &heavyLine{}
		h.of[m] = l
	}
	if l.running < h.each {
		l.running++
		return nil
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	return turn
}

// leave gives up a place in line, or the turn if it has come in the same moment.
func (h *heavy) leave(m relay.MechaNumber, turn chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, w := range h.of[m].waiting {
		if w == turn {
			h.of[m].waiting = append(h.of[m].waiting[:i], h.of[m].waiting[i+1:]...)
			return
		}
	}
	h.next(m)
}

// give ends a turn.
func (h *heavy) give(m relay.MechaNumber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next(m)
}

// next passes a turn on to the next in line. h.mu is held.
func (h *heavy) next(m relay.MechaNumber) {
	l := h.of[m]
	if len(l.waiting) > 0 {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
		return
	}
	if l.running--; l.running == 0 {
		delete(h.of, m)
	}
}

// beginHeavy waits for the turn of a call with a large body.
func (s *Server) beginHeavy(c *call) error {
	if len(c.body) <= heavyBody {
		return nil
	}
	if err := s.heavy.take(c.Context(), c.key.Mecha.Number); err != nil {
		return err
	}
	c.heavy = true
	return nil
}

// endHeavy ends the turn, if the call has one. From then on it only waits, or does what
// any call does.
func (s *Server) endHeavy(c *call) {
	if c.heavy {
		c.heavy = false
		s.heavy.give(c.key.Mecha.Number)
	}
}
