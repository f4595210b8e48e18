package http

import (
	"runtime"

	"relay/db/measure"
	"relay/db/relay"
	"relay/db/turn"
)

// heavyBody is the length of a body, in bytes, above which the work on it (signatures,
// hashes, JSON) takes so much longer than a small request that a Mecha gets only a share
// of the processors for it.
const heavyBody = 64 << 10

// newHeavy makes the turnstile of the large bodies. Those of one Mecha are worked on at
// half of the processors, so that requests of other Mechas find one. The memory for the
// bodies bounds how many wait.
func newHeavy() *turn.Stile[relay.MechaNumber] {
	return turn.NewStile[relay.MechaNumber](turn.Options{Places: turn.Unbounded, Share: max(1, runtime.GOMAXPROCS(0)/2),
		Waits: measure.NewDurations()})
}

// beginHeavy waits for the turn of a call with a large body.
func (s *Server) beginHeavy(c *call) error {
	if len(c.body) <= heavyBody {
		return nil
	}
	if err := s.heavy.Take(c.Context(), c.key.Mecha.Number, turn.Unbounded); err != nil {
		return err
	}
	c.heavy = true
	return nil
}

// endHeavy ends the turn, if the call has one: the work that its large body makes is done.
func (s *Server) endHeavy(c *call) {
	if c.heavy {
		c.heavy = false
		s.heavy.Give(c.key.Mecha.Number)
	}
}
