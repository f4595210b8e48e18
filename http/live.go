package http

import (
	"net/http"

	"relay/db/relay"

	"github.com/julienschmidt/httprouter"
)

// Live is what a Server needs of the live connections (package ws). It is safe for
// concurrent use.
type Live interface {
	// SetSender hands over the part of the server that accepts the messages of sockets,
	// before the first Connect.
	SetSender(relay.Sender)
	// Connect upgrades the request to a WebSocket for the key's Mecha. It returns
	// once the connection is no longer the HTTP server's. If it returns an error,
	// it has written nothing.
	Connect(w http.ResponseWriter, r *http.Request, key *relay.Key) error
	// Online reports whether the Mecha has a socket or a long-poll open.
	Online(relay.MechaNumber) bool
	// Watch reports on wake, until stop is called, that something has happened to
	// the messages of the key's Mecha. It counts as a socket. ended yields once, when
	// the watch must end: the reason, or nil at shutdown.
	Watch(key *relay.Key) (wake <-chan struct{}, ended <-chan error, stop func(), err error)
	// WatchReply waits for the reply to a message that the key's Mecha has sent. reply
	// yields the first one that is committed after the call, with its payload. It counts as
	// a socket and ends like Watch.
	WatchReply(
		key *relay.Key, question *relay.Message,
	) (reply <-chan *relay.Message, ended <-chan error, stop func(), err error)
}

// connect answers GET /api/v1/ws/mecha/{mechaId}. It is not an endpoint, since it
// has no answer of its own: either the upgrade succeeds and the connection is no
// longer the HTTP server's, or the request is refused like any other.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, p httprouter.Params) {
	var c *call
	var err error
	if text := ticketOf(r); text != "" {
		c, err = s.admit(w, r, p, text)
	} else {
		c, err = s.authenticate(w, r, p)
	}
	if err == nil {
		defer c.done(s)
		err = c.ownMecha()
	}
	if err == nil {
		err = s.config.DB.CheckFresh()
	}
	if err == nil && c.claimed != 0 { // a ticket has none
		err = s.config.DB.UseNonce(c.key, c.claimed)
	}
	if err == nil {
		err = s.config.Live.Connect(w, r, c.key)
	}
	if err != nil {
		s.Refuse(w, r, err)
	}
}
