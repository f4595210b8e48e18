package http

import (
	"bytes"
	"encoding/json"
	"time"

	"relay/db/relay"
)

// profileAnswer is a profile as others see it.
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

// putProfile answers PUT /api/v1/mecha/{mechaId}/profile: it replaces the caller's profile.
func (s *Server) putProfile(c *call) (answer, error) {
	if err := c.ownMecha(); err != nil {
		return answer{}, err
	}
	p, err := relay.ReadProfile(c.body)
	if err != nil {
		return answer{}, err
	}
	err = s.DB.PutProfile(&relay.PutProfile{At: c.at, Address: c.key.Mecha.Address, Profile: p, Nonce: c.claimed})
	if err != nil {
		return answer{}, err
	}
	return s.profile(c, c.key.Mecha.Address)
}

// getProfile answers GET /api/v1/mecha/{mechaId}/profile, for any key that may know of the Mecha.
func (s *Server) getProfile(c *call) (answer, error) {
	a, err := relay.ParseAddress(c.params.ByName("mechaId"))
	if err != nil {
		return answer{}, named("mechaId", err)
	}
	return s.profile(c, a)
}

func (s *Server) profile(c *call, a relay.Address) (answer, error) {
	e, err := s.DB.Entry(c.Context(), a, c.key.Mecha.Address)
	if err != nil {
		return answer{}, err
	}
	seen, err := s.DB.LastSeen(c.Context(), e.ID)
	if err != nil {
		return answer{}, err
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // else a <, > or & takes six bytes: what is read would be too long to be put again
	err = enc.Encode(profileAnswer{
		MechaID: string(a), Name: a.Name(), Crew: a.Crew(), Profile: e.Profile,
		CreatedAt: relay.FormatTime(e.CreatedAt), UpdatedAt: relay.FormatTime(e.UpdatedAt),
		Online: s.Live.Online(e.ID), LastSeen: timeOrNull(seen),
	})
	if err != nil {
		return answer{}, err
	}
	return ok(bytes.TrimSuffix(body.Bytes(), []byte("\n")))
}

func timeOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := relay.FormatTime(t)
	return &s
}
