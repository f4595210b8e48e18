package ws

import (
	"errors"

	"relay/db/relay"

	"github.com/gobwas/ws"
)

// takeFrame is the handler of the relay: a client's message is a frame that acknowledges
// or sends, in a text or a binary frame of the network (PROTOCOL §4). It is queued like
// any other write, and the next frame is read meanwhile.
func takeFrame(c *Conn, _ ws.OpCode, text []byte) error {
	if len(text) > maxMessage {
		return c.takeLarge(text)
	}
	var f relay.Frame
	switch err := f.Read(text); {
	case err != nil:
		c.releaseMemory()
		c.refuse(&f, err)
	case f.Type == relay.FrameSend:
		c.charge()
		c.sendMessage(&f)
	default:
		c.releaseMemory()
		c.acknowledge(&f)
	}
	return nil
}

func (c *Conn) acknowledge(f *relay.Frame) {
	a := f.Ack
	a.At, a.Key = c.hub.config.Now(), c.key.Number
	if err := a.Validate(); err != nil {
		c.refuse(f, err)
		return
	}
	c.hub.config.Store.AcknowledgeThen(&a, func(out relay.AckOutcome, err error) {
		switch {
		case err != nil:
			c.refuse(&relay.Frame{Ack: a}, err)
		case c.session.acks:
			c.answer(ackFrame(&out))
		default:
			c.answersDone(1)
		}
	})
}

// refuse answers a frame with an error. An error that is not the client's fault, or has a
// cause that clients must not see, is logged.
func (c *Conn) refuse(f *relay.Frame, err error) {
	code, text := relay.ErrorCode(err), "the relay failed"
	var e *relay.Error
	if errors.As(err, &e) {
		text = e.Detail
	}
	if cause := errors.Unwrap(err); cause != nil || e == nil {
		c.hub.config.Logger.Error("cannot store what a frame brings", "message", f.Ack.ID, "error", err)
	}
	c.hub.measures.Refused.Add(string(code))
	c.answer(errorFrame(code, text, f.Ack.ID, f.Ref))
}
