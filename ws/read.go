package ws

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/time/rate"
)

// The states of a connection's reader (inbound.state).
const (
	parked  = iota // there is no reader: wakeReader starts one
	reading        // there is a reader, and it looks for something to read
	woken          // there is a reader, and it must look again before it parks
)

// wakeReader starts the reader, unless there is one; then that one looks again.
// Bytes to read, or a change of Conn.ending, must be there before the call.
func (c *Conn) wakeReader() {
	if c.in.state.Swap(woken) == parked {
		go c.read(nil)
	}
}

// read is the reader goroutine. It takes the client's frames until the
// connection ends, and then clears up. early has the bytes that came with the
// handshake.
//
// Between frames the reader holds no buffers. With a poller it does not even
// stay: it parks, and wakeReader starts it again. Without one it waits in this
// function, where its stack is small.
func (c *Conn) read(early []byte) {
	for c.takeFrames(early) {
		early = nil
		if c.in.polled {
			if c.in.state.CompareAndSwap(reading, parked) {
				return
			}
			continue
		}
		if _, err := c.net.Read(c.in.first[:]); err != nil {
			break // the connection is gone, or the drain is over
		}
		early = c.in.first[:]
	}
	c.kill()
	c.hub.poller.forget(c)
	c.leave()
}

// takeFrames handles the frames that there are to read. It waits for the rest of
// a message whose first byte has come. It returns true when nothing is left to
// read for now, and false when the connection has ended.
func (c *Conn) takeFrames(early []byte) bool {
	r := readers.Get().(*reader)
	defer r.release()
	r.conn, r.early = c, early
	for r.more() {
		op, message, err := r.next(c)
		if err == nil && !op.IsControl() && !c.isClosing() { // once closing, only the peer's close frame matters
			err = c.handle(op, message)
		}
		if err != nil {
			c.readEnded(r.r, err)
			return false
		}
	}
	return true
}

// A reader reads a connection, and belongs to it while frames arrive.
type reader struct {
	messageReader
	conn  *Conn
	early []byte // bytes to read before those of the network
	now   bool   // Read does not wait, but returns errNothing
}

const readBuffer = 512 // holds a whole acknowledgement, so that one system call reads it

var readers = sync.Pool{New: func() any {
	r := &reader{}
	r.r = bufio.NewReaderSize(r, readBuffer)
	return r
}}

// release returns the reader for use by any connection.
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

// more tells whether the reader is to go on. It returns false if the reader
// would have to wait, which costs less elsewhere (read).
func (r *reader) more() bool {
	c := r.conn
	if r.r.Buffered()+len(r.early) > 0 {
		return true
	}
	if !c.in.polled {
		return false
	}
	c.in.state.Store(reading) // before it looks, so that bytes that come later set it to woken
	if c.hasSentClose() {
		return true // and wait until the deadline of the drain, of which the poller does not know
	}
	r.now = true
	_, err := r.r.Peek(1)
	r.now = false
	return err != errNothing // the next read returns any other error again
}

// countFrame is called for each frame of the client. If frames come faster than
// the limit, it waits, so that the socket is not read meanwhile.
func (c *Conn) countFrame() {
	now := time.Now()
	c.in.lastFrame.Store(now.UnixNano())
	perSecond := c.hub.config.FrameRate
	if perSecond <= 0 {
		return
	}
	if c.in.limit == nil {
		c.in.limit = rate.NewLimiter(rate.Limit(perSecond), max(c.hub.config.FrameBurst, 1))
	}
	if d := c.in.limit.ReserveN(now, 1).DelayFrom(now); d > 0 {
		c.pause(d)
	}
}

// pause waits for d, or until the connection ends.
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
	for !over && !c.ending.closeSent && !c.ending.dead {
		c.changed.Wait()
	}
}

func (c *Conn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending.closing
}

func (c *Conn) hasSentClose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending.closeSent
}

// readEnded finishes the closing handshake: it waits until our close frame is
// sent. After a fault of the peer it then drains the input, as closeWritten says.
func (c *Conn) readEnded(r io.Reader, err error) {
	var end *closeError
	if !errors.As(err, &end) {
		return // the connection is gone, or the drain is over
	}
	c.mu.Lock()
	c.closeLocked(end.code, end.reason)
	for !c.ending.closeSent && !c.ending.dead {
		c.changed.Wait()
	}
	dead := c.ending.dead
	c.mu.Unlock()
	if !dead && !end.byPeer {
		if half, ok := c.net.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the peer must not have to wait for the end of our drain (RFC 6455 §7.1.1)
		}
		_, _ = io.Copy(io.Discard, r) // until the deadline that closeWritten has set
	}
}

const maxPongs = 2 << 10 // bytes of pongs that may be queued; above this only the latest is kept

// control answers a ping with a pong. If pings come faster than the pongs can be
// written, it answers only the latest (RFC 6455 §5.5.3).
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
	c.wakePush()
}

// A handler takes one message of the client, text or binary, on the reader's
// goroutine: the next frame is read when it returns. For each message it must
// call answer once, or answersDone(1); it may do so later, and on any goroutine.
// Or it returns an error, which ends the connection, with the code of a *closeError.
type handler func(c *Conn, op ws.OpCode, message []byte) error

// handle waits until one more answer may be due, and calls the handler.
func (c *Conn) handle(op ws.OpCode, message []byte) error {
	c.mu.Lock()
	for c.out.answersDue >= maxAnswersDue && !c.ending.closeSent && !c.ending.dead {
		c.changed.Wait()
	}
	if c.ending.dead || c.ending.closeSent {
		defer c.mu.Unlock()
		if c.ending.dead {
			return net.ErrClosed
		}
		return nil // no answer could be sent; the reader drains
	}
	c.out.answersDue++
	c.mu.Unlock()
	return c.handler(c, op, message)
}
