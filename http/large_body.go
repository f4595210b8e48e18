package http

import (
	"runtime"

	"relay/db/measure"
	"relay/db/relay"
	"relay/db/turn"
)

// largeBody is the length of a body, in bytes, above which the work on it (signatures, hashes, JSON) takes so
// much longer than a small request that a Mecha gets only a share of the processors for it.
const largeBody = 64 << 10

// newLargeBodies returns the turnstile of the large bodies. The bodies of one Mecha occupy at most half of the
// processors, so that requests of other Mechas find one free. The memory for the bodies bounds how many wait.
func newLargeBodies() *turn.Stile[relay.MechaNumber] {
	return turn.NewStile[relay.MechaNumber](turn.Options{Places: turn.Unbounded, Share: max(1, runtime.GOMAXPROCS(0)/2),
		Waits: measure.NewDurations()})
}

// beginLarge waits for the turn of a call with a large body.
func (s *Server) beginLarge(c *call) error {
	if len(c.body) <= largeBody {
		return nil
	}
	if err := s.largeBodies.Take(c.Context(), c.key.Mecha.Number, turn.Unbounded); err != nil {
		return err
	}
	c.large = true
	return nil
}

// endLarge ends the turn, if the call has one: the work on its large body is done.
func (s *Server) endLarge(c *call) {
	if c.large {
		c.large = false
		s.largeBodies.Give(c.key.Mecha.Number)
	}
}
