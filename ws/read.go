package ws

import (
	"bufio"
	"errors"
	"io"
	"sync"
	"time"

	"relay/db/relay"

	"github.com/gobwas/ws"
	"golang.org/x/time/rate"
)

// Whose turn it is to read a connection (Conn.turn).
const (
	parked  = iota // nobody's: ring starts the reader
	reading        // the reader's
	rung           // the reader's, and there is more to see than it has looked for
)

// ring tells the reader that there is something to read, or that the
// connection has ended. Whatever it is must be there to see before.
func (c *Conn) ring() {
	if c.turn.Swap(rung) == parked {
		go c.read(nil)
	}
}

// read is the reader goroutine: it takes the client's frames until the
// connection ends, then clears up. early is what came with the handshake.
//
// Between frames it holds no buffers. With a poller it does not even stay: it
// parks the connection, and ring starts it again. Else it waits right here, so
// that its stack is small meanwhile.
func (c *Conn) read(early []byte) {
	for c.takeFrames(early) {
		early = nil
		if c.polled {
			if c.turn.CompareAndSwap(reading, parked) {
				return
			}
			continue
		}
		if _, err := c.net.Read(c.first[:]); err != nil {
			break // the connection is gone, or the drain is over
		}
		early = c.first[:]
	}
	c.kill()
	c.hub.poller.forget(c)
	c.hub.unregister(c.key.Mecha.ID, c, nil)
	c.hub.wg.Done()
}

// takeFrames handles what there is to read. It returns true when nothing is
// left for now, false when the connection has ended. A message whose first
// byte has come is waited for.
func (c *Conn) takeFrames(early []byte) bool {
	r := readers.Get().(*reader)
	defer r.release()
	r.conn, r.early = c, early
	for r.more() {
		op, payload, err := r.next(c)
		if err != nil {
			c.readEnded(r.r, err)
			return false
		}
		switch {
		case op.IsControl() || c.isClosing(): // draining: only the peer's close frame matters now
		case op == ws.OpBinary && c.hub.reply == nil:
			c.readEnded(r.r, &closeError{code: ws.StatusUnsupportedData, reason: "frames are JSON text"})
			return false
		case !c.handle(op, payload):
			return false
		}
	}
	return true
}

// A reader is what it takes to read a connection on which something arrives.
type reader struct {
	messageReader
	conn  *Conn
	early []byte // to be read first
	now   bool   // do not wait
}

const readBuffer = 512 // holds a whole acknowledgement: one system call reads it

var readers = sync.Pool{New: func() any {
	r := &reader{}
	r.r = bufio.NewReaderSize(r, readBuffer)
	return r
}}

func (r *reader) release() {
	r.conn, r.early = nil, nil
	r.r.Reset(r)
	readers.Put(r)
}

var errNothing = errors.New("nothing to read now")

func (r *reader) Read(p []byte) (n int, err error) {
	switch {
	case len(r.early) > 0:
		n = copy(p, r.early)
		r.early = r.early[n:]
		return n, nil
	case r.now:
		return r.conn.net.(interface{ readNow([]byte) (int, error) }).readNow(p)
	}
	return r.conn.net.Read(p)
}

// more tells whether to read on, instead of leaving the wait to others.
func (r *reader) more() bool {
	c := r.conn
	if r.r.Buffered()+len(r.early) > 0 {
		return true
	}
	if !c.polled {
		return false
	}
	c.turn.Store(reading) // before it looks: what comes later rings
	if c.hasSentClose() {
		return true // until the deadline, of which no poller knows
	}
	r.now = true
	_, err := r.r.Peek(1)
	r.now = false
	return err != errNothing // any other comes again
}

// frame is told of each of the client's frames. Beyond the rate it keeps the
// socket from being read for a while.
func (c *Conn) frame() {
	now := time.Now()
	c.lastFrame.Store(now.UnixNano())
	if c.hub.FrameRate <= 0 {
		return
	}
	if c.limit == nil {
		c.limit = rate.NewLimiter(rate.Limit(c.hub.FrameRate), max(c.hub.FrameBurst, 1))
	}
	if d := c.limit.ReserveN(now, 1).DelayFrom(now); d > 0 {
		c.pause(d)
	}
}

// pause waits, but does not keep the connection's end from coming.
func (c *Conn) pause(d time.Duration) {
	over := false
	t := time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		over = true
		c.changed.Signal()
	})
	defer t.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !over && !c.closeSent && !c.dead {
		c.changed.Wait()
	}
}

func (c *Conn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

func (c *Conn) hasSentClose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeSent
}

// readEnded finishes the closing handshake: our close frame goes out, and after
// a fault of the peer its input is drained for a moment, so that the network
// delivers our frame instead of a reset.
func (c *Conn) readEnded(r io.Reader, err error) {
	var end *closeError
	if !errors.As(err, &end) {
		return // the connection is gone, or the drain is over
	}
	c.mu.Lock()
	c.closeLocked(end.code, end.reason)
	for !c.closeSent && !c.dead {
		c.changed.Wait()
	}
	dead := c.dead
	c.mu.Unlock()
	if !dead && !end.byPeer {
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
	pongs := &c.outbox().pings[1]
	if len(*pongs)+len(payload) > maxPongs {
		*pongs = nil
	}
	*pongs = appendFrame(*pongs, ws.OpPong, payload)
	c.wake()
}

// handle takes a client's frame. The acknowledgement is queued like any other
// write; the next frame is read meanwhile, but not more than maxOwed of them.
// It returns false when the connection has ended.
func (c *Conn) handle(op ws.OpCode, frame []byte) bool {
	c.mu.Lock()
	for c.owed >= maxOwed && !c.closeSent && !c.dead {
		c.changed.Wait()
	}
	if c.dead || c.closeSent {
		defer c.mu.Unlock()
		return !c.dead // nothing is answered any more; read drains
	}
	c.owed++
	c.mu.Unlock()
	if c.hub.reply != nil {
		c.answer(c.hub.reply(op, frame))
		return true
	}
	a := &relay.Acknowledge{At: c.hub.Now(), Key: c.key}
	if err := a.ReadFrame(frame); err != nil {
		c.refuse(a.ID, err)
		return true
	}
	c.hub.Inbox.AcknowledgeThen(a, func(out relay.AckOutcome, err error) {
		switch {
		case err != nil:
			c.refuse(a.ID, err)
		case c.session.acks:
			c.answer(ackFrame(&out))
		default:
			c.settle(1)
		}
	})
	return true
}

func (c *Conn) refuse(id relay.MessageID, err error) {
	code, message := relay.ErrorCode(err), "the relay failed"
	var e *relay.Error
	if errors.As(err, &e) {
		message = e.Detail
	}
	if cause := errors.Unwrap(err); cause != nil || e == nil {
		c.hub.Logger.Error("acknowledgement failed", "message", id, "error", err)
	}
	c.answer(errorFrame(code, message, id))
}
