package ws

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/relay"

	"github.com/gobwas/ws"
	"golang.org/x/time/rate"
)

// Conn is one WebSocket of a Mecha. At most two goroutines work on it: the
// reader (read.go) and, while there is something to send, push (push.go), which
// alone writes to the network. What only a busy connection needs hangs on
// pointers: there may be many that are idle.
type Conn struct {
	hub       *Hub
	key       *relay.Key                // as it was authenticated: whose connection this is
	latest    atomic.Pointer[relay.Key] // … and as it was last read: until when
	session   session
	net       netConn
	lastFrame atomic.Int64 // Unix nanoseconds, of the client's latest frame

	// The reader's own:
	limit  *rate.Limiter // of frames; nil before the first
	first  [1]byte       // what ended the wait for a frame
	polled bool          // the poller starts the reader when there is something to read
	turn   atomic.Int32  // who is to read: parked, reading, rung

	mu        sync.Mutex
	changed   sync.Cond // dead, closeSent or owed has; the reader alone waits
	dead      bool
	closeSent bool // our close frame is on its way
	closing   bool // … or is to be
	running   bool // a push goroutine is at work
	lagging   bool // must read on from the store
	stalled   bool // … but the window is full
	owed      int  // answers that are owed, or wait to be written
	out       *outbox
	window    *window   // while syncing: it has not caught up yet
	pinged    time.Time // last ping

	// push's own:
	cursor relay.Position // everything up to here has been sent, or left out
	sent   int            // messages, for the sync frames
}

// netConn is what a connection needs of the network.
type netConn interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

const (
	maxOwed       = 256       // answers to a client's frames that may wait; then it is not read
	maxReceipts   = 1 << 20   // bytes of receipts that may wait; then the connection must start anew
	maxQueued     = 64        // new messages that may wait; then push reads from the store
	maxQueueBytes = 256 << 10 // … and bytes of payload; frames that others share come on top
	drainTimeout  = time.Second
)

// Connect upgrades a request for the key's Mecha and returns when the
// connection runs. Errors come before anything was written: UpgradeRequired,
// InvalidRequest, InvalidLimit, OriginNotAllowed, CursorNotFound,
// TooManySockets, ShuttingDown, KeyRevoked, KeyExpired.
func (h *Hub) Connect(w http.ResponseWriter, r *http.Request, key *relay.Key) error {
	if err := h.checkHandshake(r); err != nil {
		return err
	}
	s, err := readSession(r)
	if err != nil {
		return err
	}
	c := h.newConn(key, s)
	// Registered first, then the start is read: nothing falls between.
	if err := h.register(key.Mecha.ID, c, nil); err != nil {
		return err
	}
	if err := c.prepare(); err != nil {
		h.unregister(key.Mecha.ID, c, nil)
		h.wg.Done()
		return err
	}
	// What the checks above have established, in the one form that the library knows.
	r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	conn, rw, _, err := ws.HTTPUpgrader{Timeout: h.WriteTimeout}.Upgrade(r, w)
	if err != nil { // hijacked already: there is nobody left to tell
		h.unregister(key.Mecha.ID, c, nil)
		h.wg.Done()
		if conn != nil {
			conn.Close()
		}
		return nil
	}
	early := make([]byte, rw.Reader.Buffered()) // frames that came with the handshake
	_, _ = rw.Reader.Read(early)
	c.begin(conn, early)
	return nil
}

func (h *Hub) newConn(key *relay.Key, s session) *Conn {
	c := &Conn{hub: h, key: key, session: s, pinged: time.Now()}
	c.changed.L = &c.mu
	c.latest.Store(key)
	c.lastFrame.Store(c.pinged.UnixNano())
	c.turn.Store(reading)
	c.running = true // hold push back until the connection stands
	if s.syncLimit > 0 {
		c.lagging, c.window = true, &window{size: s.syncLimit}
	}
	return c
}

// begin starts the connection's goroutines. early is what came with the handshake.
func (c *Conn) begin(conn net.Conn, early []byte) {
	c.mu.Lock()
	c.net = c.hub.poller.take(conn)
	if c.dead { // killed before it had a connection
		c.net.Close()
	}
	c.mu.Unlock()
	c.polled = c.hub.poller.add(c)
	c.hub.wg.Go(c.push) // first: once the reader has ended, the hub may count on nobody being left
	go c.read(early)
}

// prepare finds where the stream starts, and sees that the key still holds.
func (c *Conn) prepare() (err error) {
	k, err := c.hub.checkKey(c.key.ID)
	if err != nil {
		return err
	}
	if !k.ExpiresAt.Equal(c.key.ExpiresAt) || !k.RevokedAt.Equal(c.key.RevokedAt) { // else one copy serves all connections
		c.latest.CompareAndSwap(c.key, k) // if not, CheckKeys was faster, and knows better
	}
	switch {
	case c.session.since != "":
		c.cursor, err = c.hub.Inbox.Cursor(c.session.since)
	case c.session.syncLimit == 0:
		c.cursor, err = c.hub.Inbox.Latest(context.Background())
	}
	if c.session.sync {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.owe(syncFrame("start", 0))
		if c.window == nil {
			c.owe(syncFrame("end", 0))
		}
	}
	return err
}

// offer hands over a message that has just been committed. The hub calls it in
// commit order. frame is that of the message if other connections are offered
// it too, else nil.
func (c *Conn) offer(m *relay.Message, frame *sharedFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lagging || c.closing {
		return // push will find it in the store
	}
	if out := c.outbox(); len(out.queue) == maxQueued || out.bytes > 0 && out.bytes+m.PayloadBytes > maxQueueBytes {
		c.fallBehind()
	} else {
		out.queue, out.bytes = append(out.queue, offered{m, frame}), out.bytes+m.PayloadBytes
	}
	c.wake()
}

// fallBehind forgets what was handed over: push reads on from the store. c.mu is held.
func (c *Conn) fallBehind() {
	c.dropQueue()
	c.lagging = true
}

// freed frees the place of a message that the recipient has answered for.
func (c *Conn) freed(change *relay.Change) {
	if !change.Freed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.window != nil && c.window.free(change.Position, change.State != relay.Expired) && c.stalled {
		c.stalled = false
		c.wake()
	}
}

// receipt queues a receipt for a sender that asked for them. A connection that
// cannot keep up with them is closed: silence would be taken for no news.
func (c *Conn) receipt(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.outbox()
	if out.receiptBytes += len(frame); out.receiptBytes > maxReceipts {
		c.closeLocked(statusTryAgainLater, "receipts came faster than they were read")
		return
	}
	out.receipts = append(out.receipts, frame)
	c.wake()
}

// owe notes an answer that is ready and has no place yet. c.mu is held.
func (c *Conn) owe(frame []byte) {
	c.owed++
	c.outbox().answers = append(c.outbox().answers, frame)
}

// answer queues a frame that is owed.
func (c *Conn) answer(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outbox().answers = append(c.outbox().answers, frame)
	c.wake()
}

// settle notes that n answers are no longer owed: the reader may go on.
func (c *Conn) settle(n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owed -= n
	c.changed.Signal()
}

// wake sees to it that push runs. c.mu is held.
func (c *Conn) wake() {
	if !c.running && !c.dead {
		c.running = true
		c.hub.wg.Go(c.push) // the reader is still counted: kill waits for c.mu
	}
}

// close starts the closing handshake from our side. It does not block.
func (c *Conn) close(code ws.StatusCode, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(code, reason)
}

func (c *Conn) closeLocked(code ws.StatusCode, reason string) {
	if !c.closing {
		c.closing = true
		c.outbox().closing = closeFrame(code, reason)
		c.wake()
	}
}

// sentClose notes that our close frame has been written, as far as that was
// possible. The reader drains for a while, so that the network delivers the
// frame instead of a reset.
func (c *Conn) sentClose() {
	_ = c.net.SetReadDeadline(time.Now().Add(drainTimeout))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeSent = true
	c.changed.Signal()
	c.ring() // nothing may come: the deadline must find somebody who reads
}

// kill ends the connection at once; the reader then leaves. TLS would say
// goodbye first, and wait seconds for a peer that reads nothing.
func (c *Conn) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	c.dead = true
	if t, ok := c.net.(*tls.Conn); ok {
		t.NetConn().Close()
	} else if c.net != nil {
		c.net.Close()
	}
	c.changed.Signal()
	c.ring()
}

// tick does what time demands: it ends those who do not answer, and tells
// whether a ping is due.
func (c *Conn) tick(now time.Time) (due bool) {
	if now.Sub(time.Unix(0, c.lastFrame.Load())) > c.hub.DeadAfter {
		c.close(ws.StatusGoingAway, "no frame from you for too long")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stalled && !c.window.acked && c.hub.SyncAckWait > 0 && now.Sub(c.window.full) > c.hub.SyncAckWait {
		c.closeLocked(statusTryAgainLater, "resume after "+string(c.window.last))
	}
	return now.Sub(c.pinged) >= c.hub.PingEvery
}

func (c *Conn) ping(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pinged, c.outbox().pings[0] = now, pingFrame
	c.wake()
}

// statusTryAgainLater is of the IANA registry, which came after RFC 6455.
const statusTryAgainLater ws.StatusCode = 1013

var pingFrame = appendFrame(nil, ws.OpPing, nil)
