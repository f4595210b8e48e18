package http

import (
	"context"
	"net/http"
	"time"

	"relay/db/relay"
)

// claimMessages answers POST /api/v1/mecha/{mechaId}/claim: it gives one of the Mecha's workers
// pending messages, with a lease (PROTOCOL §3, Claim).
func (s *Server) claimMessages(c *call) (answer, error) {
	if err := c.ownMecha(); err != nil {
		return answer{}, err
	}
	q := &relay.ClaimMessages{At: c.at, Key: c.key.Number, Nonce: c.claimed}
	wait, err := q.Read(c.body)
	if err != nil {
		return answer{}, err
	}
	s.endLarge(c)
	claimed, err := s.claimNow(c, q)
	if err == nil && len(claimed) == 0 && wait > 0 {
		claimed, err = s.waitToClaim(c, q, min(wait, maxWait))
	}
	if err != nil {
		return answer{}, err
	}
	b := append(appendName(nil, '{', "messages"), '[')
	for i, m := range claimed {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendRecord(b, m.Message)
		b = b[:len(b)-1]
		b = appendInt(b, ',', "attempt", m.Attempt)
		b = append(appendTime(b, ',', "lease_until", m.LeaseUntil), '}')
	}
	return ok(append(b, "]}"...))
}

// claimNow takes room for the messages, and claims them.
func (s *Server) claimNow(c *call, q *relay.ClaimMessages) ([]relay.ClaimedMessage, error) {
	if err := s.reserve(c, s.pageRoom(q.Limit, true)); err != nil {
		return nil, err
	}
	claimed, err := s.config.DB.ClaimMessages(c.Context(), q)
	if len(claimed) == 0 {
		s.unreserve(c)
	}
	s.keys.charge(c.key.Number, len(claimed)-1, s.config.Now()) // each message counts as one that is claimed alone
	return claimed, err
}

// waitToClaim claims again whenever something has happened to the caller's messages, until
// it has one. It counts as a socket, and ends when the key does. Each claim has a time of
// its own, since its leases begin then.
func (s *Server) waitToClaim(c *call, q *relay.ClaimMessages, wait time.Duration) ([]relay.ClaimedMessage, error) {
	wake, ended, stop, err := s.config.Live.Watch(c.key)
	if err != nil {
		return nil, err
	}
	defer stop()
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{}) // as for a long-poll
	ctx, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	for reads := 1; ; reads++ {
		found, err := s.config.DB.Claimable(c.Context(), c.key.Mecha.Number) // a claim that finds nothing is still a write
		if err == nil && found {
			again := *q
			again.At = s.config.Now()
			if s.config.DB.MayBeStale() {
				again.Nonce = 0 // the log has it from the first claim, and would refuse it
			}
			claimed, err := s.claimNow(c, &again)
			if err != nil || len(claimed) > 0 {
				return claimed, err
			}
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-wake:
		case err := <-ended:
			return nil, err
		case <-ctx.Done():
			return nil, nil
		}
		if pause := s.pause(c, reads); pause > 0 {
			select {
			case <-time.After(pause):
			case err := <-ended:
				return nil, err
			case <-ctx.Done():
			}
		}
	}
}
