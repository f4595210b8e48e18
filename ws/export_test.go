package ws

import (
	"net/http"
	"time"

	"relay/db/relay"

	"github.com/gobwas/ws"
)

// ConnectEcho is Connect for a connection that sends every message, text or
// binary, back as one frame.
func (h *Hub) ConnectEcho(w http.ResponseWriter, r *http.Request, key *relay.Key) error {
	return h.connect(w, r, key, func(c *Conn, op ws.OpCode, message []byte) error {
		c.answer(appendFrame(nil, op, message))
		return nil
	})
}

// Config returns the settings that the hub works with.
func (h *Hub) Config() Config { return h.config }

// SetDrain sets how long a peer may be silent after the relay's close frame.
func (c *Config) SetDrain(d time.Duration) { c.drain = d }
