package ws

import (
	"errors"

	"relay/db/relay"

	"github.com/gobwas/ws"
)

// acknowledge is the handler of the relay: a client's message is an
// acknowledgement, in a text or a binary frame (PROTOCOL §4). It is queued like any
// other write, and the next frame is read meanwhile.
func acknowledge(c *Conn, _ ws.OpCode, message []byte) error {
	a := &relay.Acknowledge{At: c.hub.config.Now(), Key: c.key.Number}
	if err := a.ReadFrame(message); err != nil {
		c.refuse(a.ID, err)
		return nil
	}
	c.hub.config.Store.AcknowledgeThen(a, func(out relay.AckOutcome, err error) {
		switch {
		case err != nil:
			c.refuse(a.ID, err)
		case c.session.acks:
			c.answer(ackFrame(&out))
		default:
			c.answersDone(1)
		}
	})
	return nil
}

// refuse answers with an error. id is "" if the frame named no message. An error
// that is not the client's fault, or has a cause that clients must not see, is logged.
func (c *Conn) refuse(id relay.MessageID, err error) {
	code, text := relay.ErrorCode(err), "the relay failed"
	var e *relay.Error
	if errors.As(err, &e) {
		text = e.Detail
	}
	if cause := errors.Unwrap(err); cause != nil || e == nil {
		c.hub.config.Logger.Error("cannot store an acknowledgement", "message", id, "error", err)
	}
	c.hub.measures.Refused.Add(string(code))
	c.answer(errorFrame(code, text, id))
}
