package ws

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/time/rate"

	"relay/db"
)

const readBuffer = 512 // holds a whole acknowledgement: one system call reads it

// read is the reader goroutine: it takes the client's frames until the
// connection ends, then clears up. early is what came with the handshake.
func (c *Conn) read(early []byte) {
	defer c.hub.wg.Done()
	defer c.hub.unregister(c.key.Mecha.ID, c, nil)
	defer c.kill()
	var limit *rate.Limiter
	if c.hub.FrameRate > 0 {
		limit = rate.NewLimiter(rate.Limit(c.hub.FrameRate), max(c.hub.FrameBurst, 1))
	}
	var source io.Reader = c.net
	if len(early) > 0 {
		source = io.MultiReader(bytes.NewReader(early), c.net)
	}
	m := &messageReader{r: bufio.NewReaderSize(source, readBuffer), control: c.control, frame: func() {
		now := time.Now()
		c.lastFrame.Store(now.UnixNano())
		if limit != nil {
			c.pause(limit.ReserveN(now, 1).DelayFrom(now))
		}
	}}
	for {
		op, payload, err := m.next()
		if err != nil {
			c.readEnded(m.r, err)
			return
		}
		if c.isClosing() {
			continue // draining: only the peer's close frame matters now
		}
		if op == ws.OpBinary && c.hub.reply == nil {
			c.readEnded(m.r, &closeError{code: ws.StatusUnsupportedData, reason: "frames are JSON text"})
			return
		}
		if !c.handle(op, payload) {
			return
		}
	}
}

// pause keeps the socket from being read for a while, but not its end from coming.
func (c *Conn) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.closeSent:
	case <-c.done:
	}
}

func (c *Conn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing != nil
}

// readEnded finishes the closing handshake: our close frame goes out, and after
// a fault of the peer its input is drained for a moment, so that the network
// delivers our frame instead of a reset.
func (c *Conn) readEnded(r io.Reader, err error) {
	var end *closeError
	if !errors.As(err, &end) {
		return // the connection is gone, or the drain is over
	}
	c.close(end.code, end.reason)
	select {
	case <-c.closeSent:
	case <-c.done:
		return
	}
	if !end.byPeer {
		if half, ok := c.net.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the peer waits for our end, not for that of the drain (RFC 6455 §7.1.1)
		}
		_, _ = io.Copy(io.Discard, r) // until the deadline that push has set
	}
}

const maxPongs = 2 << 10 // bytes of pongs that may wait; then only the latest does

// control answers a ping with a pong; only the latest if they come faster than
// they can be answered (RFC 6455 §5.5.3).
func (c *Conn) control(op ws.OpCode, payload []byte) {
	if op != ws.OpPing {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pings[1])+len(payload) > maxPongs {
		c.pings[1] = nil
	}
	c.pings[1] = appendFrame(c.pings[1], ws.OpPong, payload)
	c.wake()
}

// handle takes a client's frame. The acknowledgement is queued like any other
// write; the next frame is read meanwhile, but not more than maxOwed of them.
// It returns false when the connection has ended.
func (c *Conn) handle(op ws.OpCode, frame []byte) bool {
	select {
	case c.slots <- struct{}{}:
	case <-c.closeSent:
		return true // nothing is answered any more; read drains
	case <-c.done:
		return false
	}
	if c.hub.reply != nil {
		c.answer(c.hub.reply(op, frame))
		return true
	}
	a := &db.Acknowledge{At: c.hub.Now(), Key: c.key}
	if err := a.ReadFrame(frame); err != nil {
		c.refuse(a.ID, err)
		return true
	}
	c.hub.Inbox.AcknowledgeThen(a, func(out db.AckOutcome, err error) {
		switch {
		case err != nil:
			c.refuse(a.ID, err)
		case c.session.acks:
			c.answer(ackFrame(out))
		default:
			<-c.slots
		}
	})
	return true
}

func (c *Conn) refuse(id db.MessageID, err error) {
	code, message := db.ErrorCode(err), "the relay failed"
	var e *db.Error
	if errors.As(err, &e) {
		message = e.Detail
	}
	if cause := errors.Unwrap(err); cause != nil || e == nil {
		c.hub.Logger.Error("acknowledgement failed", "message", id, "error", err)
	}
	c.answer(errorFrame(code, message, id))
}
