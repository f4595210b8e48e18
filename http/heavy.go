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
	of map[relay.MechaNumber]*heavyBodies // the Mechas that have large bodies
}

// heavyBodies is the large bodies of a Mecha.
type heavyBodies struct {
	turns chan struct{} // has an element for each body that is worked on; a send waits for the body's turn
	count int           // of the bodies that are worked on or wait; guarded by heavy.mu
}

func newHeavy() *heavy {
	return &heavy{each: max(1, runtime.GOMAXPROCS(0)/2), waits: measure.NewDurations(), of: map[relay.MechaNumber]*heavyBodies{}}
}

// take waits for the turn of a body, or until ctx ends; then it returns the error of
// ctx. After nil, give must follow. The memory for the bodies bounds how many wait.
func (h *heavy) take(ctx context.Context, m relay.MechaNumber) error {
	turns := h.join(m).turns
	select {
	case turns <- struct{}{}:
		return nil
	default:
	}
	began := time.Now()
	defer func() { h.waits.Observe(time.Since(began)) }()
	select {
	case turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		h.leave(m)
		return ctx.Err()
	}
}

// give ends a turn.
func (h *heavy) give(m relay.MechaNumber) { <-h.leave(m).turns }

// join counts one more body of a Mecha.
func (h *heavy) join(m relay.MechaNumber) *heavyBodies {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.of[m]
	if b == nil {
		b = &heavyBodies{turns: make(chan struct{}, h.each)}
		h.of[m] = b
	}
	b.count++
	return b
}

// leave counts one body less.
func (h *heavy) leave(m relay.MechaNumber) *heavyBodies {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.of[m]
	if b.count--; b.count == 0 {
		delete(h.of, m)
	}
	return b
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

// endHeavy ends the turn, if the call has one: the work that its large body makes is done.
func (s *Server) endHeavy(c *call) {
	if c.heavy {
		c.heavy = false
		s.heavy.give(c.key.Mecha.Number)
	}
}
