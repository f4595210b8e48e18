package ws

import "github.com/gobwas/ws"

// Echo has the hub's connections send back every message, text or binary, as
// one frame. Call it before the first connection.
func (h *Hub) Echo() {
	h.reply = func(op ws.OpCode, message []byte) []byte { return appendFrame(nil, op, message) }
}
