package http

import (
	"net/http"
	"time"

	"relay/db/relay"
)

// profileAnswer is a profile as it is read (PROTOCOL §5).
type profileAnswer struct {
	MechaID string `json:"mecha_id"`
	Name    string `json:"name"`
	Crew    string `json:"crew"`
	relay.Profile
	CreatedAt string  `json:"created_at"`
	UpdatedAt string  `json:"updated_at"`
	Online    bool    `json:"online"`
	LastSeen  *string `json:"last_seen"`
}

// putProfile answers PUT /api/v1/mecha/{mechaId}/profile: it replaces the
// caller's profile and returns the new one.
func (s *Server) putProfile(c *call) (answer, error) {
	if err := c.ownMecha(); err != nil {
		return answer{}, err
	}
	p, err := relay.ReadProfile(c.body)
	if err != nil {
		return answer{}, err
	}
	if err := s.reserve(c, profileRoom); err != nil {
		return answer{}, err
	}
	err = s.config.DB.PutProfile(&relay.PutProfile{At: c.at, Key: c.key.Number, Address: c.key.Mecha.Address,
		Profile: p.Stored(), Nonce: c.claimed})
	if err != nil {
		return answer{}, err
	}
	return s.profile(c, c.key.Mecha.Address)
}

// getProfile answers GET /api/v1/mecha/{mechaId}/profile. A profile that the
// caller may not see is answered like one that does not exist.
func (s *Server) getProfile(c *call) (answer, error) {
	a, err := c.mecha()
	if err != nil {
		return answer{}, err
	}
	if err := s.reserve(c, profileRoom); err != nil {
		return answer{}, err
	}
	return s.profile(c, a)
}

func (s *Server) profile(c *call, a relay.Address) (answer, error) {
	e, err := s.config.DB.Entry(c.Context(), a, c.key.Mecha)
	if err != nil {
		return answer{}, err
	}
	seen, err := s.config.DB.LastSeen(c.Context(), c.key.Mecha.Number, e.Number)
	if err != nil {
		return answer{}, err
	}
	body, err := encode(profileAnswer{
		MechaID: string(a), Name: a.Name(), Crew: a.Crew(), Profile: e.Profile,
		CreatedAt: relay.FormatTime(e.CreatedAt), UpdatedAt: relay.FormatTime(e.UpdatedAt),
		Online: s.config.Live.Online(e.Number), LastSeen: timeOrNull(seen),
	})
	return answer{status: http.StatusOK, body: body}, err
}

func timeOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := relay.FormatTime(t)
	return &s
}
