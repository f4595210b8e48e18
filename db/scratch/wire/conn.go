package wire

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is one end of a connection in memory.
type Conn struct {
	*link
	peer        *Conn
	addr        net.Addr
	in          bytes.Buffer // what has come and is not read
	room        int          // how many bytes in may hold
	ended       bool         // no more is written: the peer reads to the end of the stream
	closed      bool
	reset       bool // the peer is gone: what has come can still be read
	read, write deadline
}

// link is what both ends share.
type link struct {
	mu      sync.Mutex // guards both ends
	changed *sync.Cond
	cut     bool
}

// deadline is one of net.Conn.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) isOver() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// Pair connects two ends, which have these addresses.
func Pair(near, far net.Addr) (a, b *Conn) {
	l := &link{}
	l.changed = sync.NewCond(&l.mu)
	a, b = &Conn{link: l, addr: near, room: Room}, &Conn{link: l, addr: far, room: Room}
	a.peer, b.peer = b, a
	return a, b
}

// Read waits for the first byte.
func (c *Conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.read.isOver():
			return 0, os.ErrDeadlineExceeded
		case c.in.Len() > 0 || len(b) == 0:
			c.changed.Broadcast()
			return c.in.Read(b)
		}
		if err := c.end(); err != nil {
			return 0, err
		}
		c.changed.Wait()
	}
}

// end returns why nothing more will arrive, or nil if something may. The caller must hold c.mu.
func (c *Conn) end() error {
	switch {
	case c.cut:
		return nil
	case c.reset:
		return syscall.ECONNRESET
	case c.peer.ended:
		return io.EOF
	}
	return nil
}

// Write waits until the peer has room for all bytes.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed || c.ended:
			return n, net.ErrClosed
		case c.write.isOver():
			return n, os.ErrDeadlineExceeded
		case c.cut: // the network takes what it is given, and loses it
			return len(b), nil
		case c.reset:
			return n, syscall.ECONNRESET
		case c.peer.closed:
			c.reset = true
			c.changed.Broadcast()
			return n, syscall.EPIPE
		}
		if k := min(len(b)-n, c.peer.room-c.peer.in.Len()); k > 0 {
			c.peer.in.Write(b[n : n+k])
			n += k
			c.changed.Broadcast()
		}
		if n == len(b) {
			return n, nil
		}
		c.changed.Wait()
	}
}

// Close ends both directions. As with TCP, the peer sees a reset if something has come that was not read.
func (c *Conn) Close() error { return c.close(false) }

// Reset closes the connection without an order: nothing of what is under way arrives.
func (c *Conn) Reset() { c.close(true) }

func (c *Conn) close(reset bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed, c.ended = true, true
	c.peer.reset = c.peer.reset || reset || c.in.Len() > 0
	if reset {
		c.peer.in.Reset()
	}
	c.set(&c.read, time.Time{})
	c.set(&c.write, time.Time{})
	return nil
}

// CloseWrite says that nothing more comes from this end.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.changed.Broadcast()
	return nil
}

// Cut cuts the connection: it carries nothing more, and neither end is told.
func (c *Conn) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.changed.Broadcast()
}

// SetReadBuffer sets how many unread bytes this end holds.
func (c *Conn) SetReadBuffer(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room = n
	c.changed.Broadcast()
	return nil
}

// SetDeadline implements net.Conn, as the methods below do.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(&c.read, t)
	c.set(&c.write, t)
	return nil
}

func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(&c.read, t)
	return nil
}

func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(&c.write, t)
	return nil
}

// set moves a deadline, and wakes all waiting reads and writes. The caller must hold c.mu.
func (c *Conn) set(d *deadline, t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changed.Broadcast()
		})
	}
	c.changed.Broadcast()
}

func (c *Conn) LocalAddr() net.Addr  { return c.addr }
func (c *Conn) RemoteAddr() net.Addr { return c.peer.addr }
