package ws

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"

	"relay/db"
)

// Conn is one WebSocket of a Mecha. Two goroutines work on it: the reader
// (read.go) for as long as it lives, and push (push.go) while there is
// something to send; only push writes to the network.
type Conn struct {
	hub       *Hub
	key       *db.Key                // as it was authenticated: whose connection this is
	latest    atomic.Pointer[db.Key] // … and as it was last read: until when
	session   session
	net       net.Conn
	done      chan struct{} // closed when the connection is dead
	dead      sync.Once
	closeSent chan struct{} // closed when our close frame is on its way
	slots     chan struct{} // one token per answer that is owed, or waits to be written
	lastFrame atomic.Int64  // Unix nanoseconds, of the client's latest frame

	mu           sync.Mutex
	running      bool     // a push goroutine is at work
	closing      []byte   // the close frame to send; nil: none
	answers      [][]byte // frames that hold a slot each
	receiptBytes int
	receipts     [][]byte      // frames
	pings        [2][]byte     // a ping to send, pongs to send
	queue        []*db.Message // new messages, while not lagging
	bytes        int           // of payload in the queue
	lagging      bool          // must read on from the store
	stalled      bool          // … but the window is full
	window       window        // while syncing
	syncing      bool          // has not caught up yet
	pinged       time.Time     // last ping
	lastID       db.MessageID  // sent last, while syncing

	// push's own:
	cursor db.Position // everything up to here has been sent, or left out
	sent   int         // messages, for the sync frames
}

const (
	maxOwed       = 256       // answers to a client's frames that may wait; then it is not read
	maxReceipts   = 1 << 20   // bytes of receipts that may wait; then the connection must start anew
	maxQueued     = 64        // new messages that may wait; then push reads from the store
	maxQueueBytes = 256 << 10 // … and bytes of payload
	drainTimeout  = time.Second
)

// Connect upgrades a request for the key's Mecha and returns when the
// connection runs. Errors come before anything was written: UpgradeRequired,
// InvalidRequest, InvalidLimit, OriginNotAllowed, CursorNotFound,
// TooManySockets, ShuttingDown, KeyRevoked, KeyExpired.
func (h *Hub) Connect(w http.ResponseWriter, r *http.Request, key *db.Key) error {
	if err := h.checkHandshake(r); err != nil {
		return err
	}
	s, err := readSession(r)
	if err != nil {
		return err
	}
	c := &Conn{hub: h, key: key, session: s, done: make(chan struct{}), closeSent: make(chan struct{}), slots: make(chan struct{}, maxOwed)}
	c.latest.Store(key)
	c.running = true // hold push back until the connection stands
	c.lagging, c.syncing = s.syncLimit > 0, s.syncLimit > 0
	c.window.size = s.syncLimit
	c.pinged = time.Now()
	c.lastFrame.Store(c.pinged.UnixNano())
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
	c.mu.Lock()
	c.net = conn
	c.mu.Unlock()
	if c.isDead() { // killed before it had a connection
		conn.Close()
	}
	early := make([]byte, rw.Reader.Buffered()) // frames that came with the handshake
	_, _ = rw.Reader.Read(early)
	h.wg.Go(c.push) // first: once the reader has ended, the hub may count on nobody being left
	go c.read(early)
	return nil
}

// prepare finds where the stream starts, and sees that the key still holds.
func (c *Conn) prepare() (err error) {
	k, err := c.hub.checkKey(c.key.ID)
	if err != nil {
		return err
	}
	c.latest.CompareAndSwap(c.key, k) // else CheckKeys was faster, and knows better
	switch {
	case c.session.since != "":
		c.cursor, err = c.hub.Inbox.Cursor(c.session.since)
	case c.session.syncLimit == 0:
		c.cursor, err = c.hub.Inbox.Latest(context.Background())
	}
	if c.session.sync {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.answers = append(c.answers, syncFrame("start", 0))
		c.slots <- struct{}{}
		if !c.syncing {
			c.answers = append(c.answers, syncFrame("end", 0))
			c.slots <- struct{}{}
		}
	}
	return err
}

// offer hands over a message that has just been committed. The hub calls it in
// commit order.
func (c *Conn) offer(m *db.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lagging || c.closing != nil {
		return // push will find it in the store
	}
	if len(c.queue) == maxQueued || c.bytes > 0 && c.bytes+m.PayloadBytes > maxQueueBytes {
		c.fallBehind()
	} else {
		c.queue, c.bytes = append(c.queue, m), c.bytes+m.PayloadBytes
	}
	c.wake()
}

// fallBehind forgets what was handed over: push reads on from the store. c.mu is held.
func (c *Conn) fallBehind() {
	c.queue, c.bytes, c.lagging = nil, 0, true
}

// freed frees the place of a message that the recipient has answered for.
func (c *Conn) freed(change *db.Change) {
	if !change.Freed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.window.free(change.Position, change.State != db.Expired) && c.stalled {
		c.stalled = false
		c.wake()
	}
}

// receipt queues a receipt for a sender that asked for them. A connection that
// cannot keep up with them is closed: silence would be taken for no news.
func (c *Conn) receipt(change *db.Change) {
	if !c.session.receipts {
		return
	}
	frame := receiptFrame(*change)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receiptBytes += len(frame); c.receiptBytes > maxReceipts {
		c.closeLocked(statusTryAgainLater, "receipts came faster than they were read")
		return
	}
	c.receipts = append(c.receipts, frame)
	c.wake()
}

// answer queues a frame that owns one of the slots.
func (c *Conn) answer(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, frame)
	c.wake()
}

// wake sees to it that push runs. c.mu is held.
func (c *Conn) wake() {
	if !c.running && !c.isDead() {
		c.running = true
		c.hub.wg.Go(c.push) // the reader is still counted: kill waits for c.mu
	}
}

func (c *Conn) isDead() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// close starts the closing handshake from our side. It does not block.
func (c *Conn) close(code ws.StatusCode, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(code, reason)
}

func (c *Conn) closeLocked(code ws.StatusCode, reason string) {
	if c.closing == nil {
		c.closing = closeFrame(code, reason)
		c.wake()
	}
}

// kill ends the connection at once; the reader then leaves. TLS would say
// goodbye first, and wait seconds for a peer that reads nothing.
func (c *Conn) kill() {
	c.dead.Do(func() {
		close(c.done)
		c.mu.Lock()
		defer c.mu.Unlock()
		if t, ok := c.net.(*tls.Conn); ok {
			t.NetConn().Close()
		} else if c.net != nil {
			c.net.Close()
		}
	})
}

// tick does what time demands: pings, and the ends of those who do not answer.
func (c *Conn) tick(now time.Time) {
	if now.Sub(time.Unix(0, c.lastFrame.Load())) > c.hub.DeadAfter {
		c.close(ws.StatusGoingAway, "no frame from you for too long")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.pinged) >= c.hub.PingEvery {
		c.pinged, c.pings[0] = now, pingFrame
		c.wake()
	}
	if c.stalled && !c.window.acked && c.hub.SyncAckWait > 0 && now.Sub(c.window.full) > c.hub.SyncAckWait {
		c.closeLocked(statusTryAgainLater, "resume after "+string(c.lastID))
	}
}

// statusTryAgainLater is of the IANA registry, which came after RFC 6455.
const statusTryAgainLater ws.StatusCode = 1013

var pingFrame = appendFrame(nil, ws.OpPing, nil)
