package ws

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gobwas/ws"
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
// stay: it parks, in the middle of a frame as well, and wakeReader starts it
// again. Without one it waits in this function, where its stack is small.
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
	c.releaseMemory()
	c.leave()
}

// takeFrames handles the frames that there are to read. It returns true when
// nothing is left to read for now, and false when the connection has ended.
func (c *Conn) takeFrames(early []byte) bool {
	r := readers.Get().(*reader)
	defer r.release()
	r.resume(c, early)
	for c.in.polled || !r.empty() {
		c.in.state.Store(reading) // before it looks, so that bytes that come later set it to woken
		switch err := r.takeFrame(); {
		case err == errNothing:
			r.keep()
			return true
		case err != nil:
			if !c.readEnded(err) {
				return false
			}
			r.coming = coming{} // of a message that is not taken
			c.releaseMemory()
		}
	}
	return true
}

// A reader reads a connection, and belongs to it while frames arrive.
type reader struct {
	messageReader
	conn  *Conn
	early []byte // bytes to read before those of the network
}

const readBuffer = 512 // holds a whole acknowledgement, so that one system call reads it

var readers = sync.Pool{New: func() any {
	r := &reader{}
	r.r = bufio.NewReaderSize(r, readBuffer)
	return r
}}

// A part is the beginning of a message, kept while the reader is parked.
type part struct {
	coming
	rest []byte // of the header of the next frame
}

// resume assigns the reader to c, where it continues after the last one.
func (r *reader) resume(c *Conn, early []byte) {
	r.conn, r.early = c, early
	if p := c.in.part; p != nil {
		r.coming, r.early, c.in.part = p.coming, p.rest, nil
	}
}

// keep stores the beginning of a message, if one has begun.
func (r *reader) keep() {
	n := r.r.Buffered()
	if n == 0 && !r.coming.begun() {
		return
	}
	r.begun()
	rest, _ := r.r.Peek(n)
	r.conn.in.part = &part{coming: r.coming, rest: slices.Clone(rest)}
}

// begun notes that a message has begun, and that we wait for the rest.
func (r *reader) begun() {
	in := &r.conn.in
	if in.begun.Load() == 0 {
		in.begun.Store(r.conn.hub.elapsed())
	}
}

// release returns the reader for use by any connection.
func (r *reader) release() {
	r.conn, r.early, r.coming = nil, nil, coming{}
	r.r.Reset(r)
	readers.Put(r)
}

// errNothing is the error of a connection that does not wait: nothing is there to read.
var errNothing = errors.New("nothing to read now")

// Read reads for the bufio.Reader.
func (r *reader) Read(p []byte) (n int, err error) {
	if len(r.early) > 0 {
		n = copy(p, r.early)
		r.early = r.early[n:]
		return n, nil
	}
	if !r.conn.in.polled {
		r.begun() // the reader runs without a poller only once a frame has begun
	}
	return r.conn.net.Read(p)
}

// empty reports whether all bytes that were read have been used.
func (r *reader) empty() bool { return r.r.Buffered()+len(r.early) == 0 }

// takeFrame takes a message, a ping or a pong.
func (r *reader) takeFrame() error {
	c := r.conn
	if c.in.discarding {
		_, err := io.Copy(io.Discard, r.r)
		return cmp.Or(err, io.EOF)
	}
	op, message, err := r.next(c)
	if err != nil {
		return err
	}
	c.in.begun.Store(0)
	if op.IsControl() {
		return nil
	}
	return c.handle(op, message)
}

// countFrame is called for each frame of the client. If the frames of the key come
// faster than its rate, countFrame waits, so that the socket is not read meanwhile.
func (c *Conn) countFrame() {
	now := c.hub.elapsed()
	c.in.lastFrame.Store(now)
	c.slow(now, c.hub.meters.take(c.in.meter, now))
}

// slow does not read the socket for d, because of a rate of its key.
func (c *Conn) slow(now int64, d time.Duration) {
	if d <= 0 {
		return
	}
	c.in.lastFrame.Store(now + int64(d)) // the client is not silent while we do not read
	c.in.begun.Store(0)                  // if the rest is late, then because of us
	c.hub.measures.FrameWait.Observe(d)
	c.pause(d)
}

// pause waits for d, or until the connection has ended. Our close frame does not end it,
// or a client that provokes one would be read without a limit until the drain is over.
func (c *Conn) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.ending.dead && await(c, t.C) {
	}
}

// await unlocks c.mu until signal is called, or end has a value or is closed: then it
// returns false. It is for the reader alone.
func await[T any](c *Conn, end <-chan T) (signalled bool) {
	c.changed = make(chan struct{}, 1)
	changed := c.changed
	c.mu.Unlock()
	select {
	case <-changed:
		signalled = true
	case <-end:
	}
	c.mu.Lock()
	c.changed = nil
	return signalled
}

// signal lets await return. ending or out.answersDue has changed. c.mu is held.
func (c *Conn) signal() {
	select {
	case c.changed <- struct{}{}: // never, while it is nil
	default:
	}
}

// readEnded finishes the closing handshake: it waits until our close frame is sent. It reports
// whether the reader must drain the input, which is after a fault of the peer: then the reader
// drains the input, as closeWritten says.
func (c *Conn) readEnded(err error) (drain bool) {
	var end *closeError
	if !errors.As(err, &end) {
		return false // the connection is gone, or the drain is over
	}
	c.mu.Lock()
	c.closeLocked(end.code, end.reason)
	for !c.ending.closeSent && !c.ending.dead {
		await[struct{}](c, nil)
	}
	dead := c.ending.dead
	c.mu.Unlock()
	if dead || end.byPeer {
		return false
	}
	if half, ok := c.net.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the peer must not have to wait for the end of our drain (RFC 6455 §7.1.1)
	}
	c.in.discarding = true
	return true
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
	pongs := &c.sendQueue().pings[1]
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

// handle waits until one more answer may be due, and calls the handler. It does so
// after our close frame, too: the peer sent the message before it saw that frame.
func (c *Conn) handle(op ws.OpCode, message []byte) error {
	c.mu.Lock()
	for c.out.answersDue >= c.in.maxDue.Load() && !c.ending.dead {
		await[struct{}](c, nil)
	}
	if c.ending.dead {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.out.answersDue++
	c.mu.Unlock()
	return c.handler(c, op, message)
}
