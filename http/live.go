package http

import (
	"net/http"

	"relay/db/relay"

	"github.com/julienschmidt/httprouter"
)

// Live is what the routes need of the live connections (package ws).
type Live interface {
	// Connect upgrades the request to a WebSocket for the key's Mecha, and
	// returns when the connection has been handed over. An error is returned
	// before anything was written.
	Connect(w http.ResponseWriter, r *http.Request, key *relay.Key) error
	// Online tells whether the Mecha has a socket or a long-poll open.
	Online(relay.MechaID) bool
	// Watch tells, until stop is called, when something has happened to the
	// messages of the key's Mecha. It counts as a socket. ended yields once when
	// the watch must end: with the reason, or nil at shutdown.
	Watch(key *relay.Key) (wake <-chan struct{}, ended <-chan error, stop func(), err error)
}

// connect answers GET /api/v1/ws/mecha/{mechaId}: refusals are ordinary HTTP
// errors, then the connection is no longer HTTP's.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, p httprouter.Params) {
	c, err := s.authenticate(w, r, p)
	if err == nil {
		defer c.done(s)
		err = c.ownMecha()
	}
	if err == nil {
		err = s.Live.Connect(w, r, c.key)
	}
	if err != nil {
		s.refuse(w, r, err)
	}
}
