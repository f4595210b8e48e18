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
)

// Conn is one WebSocket of a Mecha. At most two goroutines work on it: the
// reader (read.go), and push (push.go) while there is something to send. Push
// alone writes to the network. Most connections are idle, so Conn is small: the
// parts that only a busy connection needs are behind pointers.
type Conn struct {
	hub     *Hub
	handler handler // takes the client's messages
	heldKey         // the key that opened the connection
	session session // the query of the handshake
	began   int64   // when the connection began, as Hub.elapsed
	net     netConn // set by begin
	in      inbound

	mu      sync.Mutex    // guards ending, out, changed, and the setting of net
	changed chan struct{} // signals the reader when ending or out.answersDue has changed; nil: it does not wait for that
	ending  ending
	out     outbound

	stream stream // used by push alone, once it runs
}

// netConn is the part of net.Conn that a connection uses. If the poller waits for it,
// Read does not wait, but returns errNothing.
type netConn interface {
	io.ReadWriteCloser
	SetWriteDeadline(time.Time) error
}

// inbound is the reader's state, as far as it outlives a frame. Times are of Hub.elapsed. The ticker reads
// lastFrame and begun, too.
type inbound struct {
	lastFrame  atomic.Int64 // when the client's latest frame came
	begun      atomic.Int64 // since when the rest of a message is awaited; 0: none has begun
	meter      *meter       // the rate of the key's frames; set by register
	part       *part        // the beginning of a message, while the reader is parked in the middle of it; nil: none
	state      atomic.Int32 // whether there is a reader: parked, reading or woken
	maxDue     atomic.Int32 // answers that may be due; at this number we stop reading from the client
	held       int32        // the memory that is counted for the message that comes, in bytes
	polled     bool         // the poller wakes the reader, so the reader leaves when nothing is there to read
	discarding bool         // the peer has broken the protocol: its further bytes are dropped
	first      [1]byte      // without a poller, the byte that ended the wait for a frame
}

// ending is how far the end of the connection has come.
type ending struct {
	closing   bool        // our close frame is queued or sent: no more messages are sent
	closeSent bool        // our close frame has been written, or could not be
	dead      bool        // the network connection is closed
	drain     *time.Timer // ends the connection after our close frame; nil before it was written
}

// outbound is the work that waits for push.
type outbound struct {
	queue      *sendQueue // frames and messages that wait to be written; nil: none
	window     *window    // the messages in flight while the stream has not caught up; nil: it is live
	pinged     int64      // when the latest ping was queued, as Hub.elapsed; before the first, when the connection began
	answersDue int32      // answers that wait for the store, or in the queue, or are being written
	running    bool       // there is a push goroutine
	lagging    bool       // the queue lacks messages, so push must read from the store
	// newsSince is when the oldest of the new messages that a live connection has not
	// been sent was committed, as Hub.elapsed; 0: it has been sent all.
	newsSince int64
	// receiptsAfter says that the queue lacks the receipts after this position, so push
	// must read them from the store; 0: it lacks none.
	receiptsAfter relay.Position
	returns       bool // messages may have come back, which push must read from the store
	stalled       bool // the sync window is full, so push waits although lagging
}

// stream is how far push has come.
type stream struct {
	cursor   relay.Position // every message up to here has been sent, or was not to be
	receipts relay.Position // every receipt up to here has been sent; 0: none was read from the store
	returned relay.Position // every message that came back up to here has been sent, or was not to be
	before   relay.Position // of the messages that came back, only those up to here; the stream has the others
	sent     int            // how many messages have been sent, for the sync frames
	// newsSince is outbound's, for the messages that push has taken; 0: it has written some of
	// them, or has found none.
	newsSince int64
}

const (
	maxReceipts   = 256 << 10   // bytes of receipts that may be queued; above this push reads them from the store
	maxQueued     = 64          // new messages that may be queued; above this push reads them from the store
	maxQueueBytes = 256 << 10   // bytes of payload of the queued messages; frames that connections share are not counted
	drainTimeout  = time.Second // Config.drain, if that is 0
)

// Connect upgrades a request to a WebSocket of the key's Mecha, and returns when
// the connection runs. An error is returned before anything was written:
// UpgradeRequired, InvalidRequest, InvalidLimit, OriginNotAllowed,
// CursorNotFound, TooManySockets, ShuttingDown, KeyRevoked, KeyExpired.
func (h *Hub) Connect(w http.ResponseWriter, r *http.Request, key *relay.Key) error {
	return h.connect(w, r, key, takeFrame)
}

func (h *Hub) connect(w http.ResponseWriter, r *http.Request, key *relay.Key, handle handler) error {
	if err := h.checkHandshake(r); err != nil {
		return err
	}
	s, err := readSession(r)
	if err != nil {
		return err
	}
	c := h.newConn(key, s, handle)
	// The connection is registered before it reads where the stream starts, so
	// that it misses no commit in between.
	if err := h.register(c); err != nil {
		return err
	}
	if err := c.prepare(); err != nil {
		c.leave()
		return err
	}
	conn, early, err := upgrade(w, r, h.config.WriteTimeout)
	if err != nil {
		c.leave()
		return nil // the connection has been taken over from HTTP, and has failed: nobody can be answered
	}
	c.begin(conn, early)
	return nil
}

func (h *Hub) newConn(key *relay.Key, s session, handle handler) *Conn {
	c := &Conn{hub: h, handler: handle, heldKey: heldKey{key: key}, session: s}
	c.in.state.Store(reading)
	c.began = h.elapsed()
	c.out.pinged = c.began
	c.in.lastFrame.Store(c.began)
	c.out.running = true // begin starts push: until then nobody else may
	if s.syncLimit > 0 {
		c.out.lagging, c.out.window = true, &window{size: s.syncLimit}
	}
	return c
}

// prepare checks that the key still holds, and finds where the stream starts.
func (c *Conn) prepare() (err error) {
	if err := c.hub.recheck(&c.heldKey); err != nil {
		return err
	}
	c.stream.before, c.stream.returned = relay.MaxPosition, relay.PositionAt(c.hub.config.Now())-1
	switch {
	// they may have come back while nobody was connected
	case c.session.since != "":
		c.stream.cursor, err = c.hub.config.Store.Cursor(c.session.since)
		c.stream.before, c.stream.returned, c.out.returns = c.stream.cursor, 0, true
	case c.session.syncLimit == 0:
		c.stream.cursor, err = c.hub.config.Store.Latest(context.Background())
	}
	if c.session.sync {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.announce(syncFrame("start", 0))
		if c.out.window == nil {
			c.announce(syncFrame("end", 0))
		}
	}
	return err
}

// begin starts the connection's goroutines. early has the bytes that came with
// the handshake.
func (c *Conn) begin(conn net.Conn, early []byte) {
	c.mu.Lock()
	if !c.hub.poller.take(c, conn) {
		c.net = conn
	}
	if c.ending.dead { // killed before it had a network connection
		c.net.Close()
	}
	c.mu.Unlock()
	c.hub.wg.Go(c.push) // before the reader, which may leave at once: then Close must know of push
	go c.read(early)
}

// leave takes the connection out of the hub. Close then waits for push alone.
func (c *Conn) leave() {
	c.hub.unregister(c)
	c.hub.wg.Done()
}

// wakePush starts push, unless it runs. c.mu is held.
func (c *Conn) wakePush() {
	if !c.out.running && !c.ending.dead {
		c.out.running = true
		c.hub.wg.Go(c.push) // Close still waits for the connection: it cannot leave before it is dead
	}
}

// end closes the connection (listener).
func (c *Conn) end(reason error) {
	switch code := relay.ErrorCode(reason); code {
	case "":
		c.close(ws.StatusGoingAway, "the relay is shutting down")
	case relay.NotCurrent:
		c.close(statusTryAgainLater, string(code))
	default:
		c.close(ws.StatusPolicyViolation, string(code))
	}
}

// close starts the closing handshake from our side. It does not block.
func (c *Conn) close(code ws.StatusCode, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(code, reason)
}

func (c *Conn) closeLocked(code ws.StatusCode, reason string) {
	if !c.ending.closing {
		c.ending.closing = true
		c.sendQueue().closing = closeFrame(code, reason)
		c.wakePush()
	}
}

// closeWritten notes that push is done with our close frame. From now on answers are
// dropped. The reader drains the input for a while: closing with unread input would
// have the network send a reset, which can overtake the frame.
func (c *Conn) closeWritten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending.closeSent = true
	if o := c.out.queue; o != nil {
		c.out.answersDue -= int32(len(o.answers))
		c.out.queue = nil
	}
	c.signal()
	if c.ending.dead {
		return
	}
	by := time.Now().Add(c.hub.config.WriteTimeout)
	c.ending.drain = time.AfterFunc(c.hub.config.drain, func() { c.drained(by) })
}

// drained ends the connection, unless the peer has not yet taken all that was written,
// or still sends frames, or the store works on its acknowledgements. In these cases
// drained looks again a little later, until by.
func (c *Conn) drained(by time.Time) {
	more := unsent(c.net) || c.hub.elapsed()-c.in.lastFrame.Load() < int64(c.hub.config.drain)
	c.mu.Lock()
	if more = more || c.out.answersDue > 0; more && !c.ending.dead && time.Now().Before(by) {
		c.ending.drain.Reset(c.hub.config.drain)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.kill()
}

// kill ends the connection at once, and the reader with it. A TLS connection is
// closed below TLS, which would wait seconds to say goodbye to a peer that reads
// nothing.
func (c *Conn) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending.dead {
		return
	}
	c.ending.dead = true
	if c.ending.drain != nil {
		c.ending.drain.Stop()
	}
	if t, ok := c.net.(*tls.Conn); ok {
		t.NetConn().Close()
	} else if c.net != nil {
		c.net.Close()
	}
	c.signal()
	c.wakeReader()
}

// tick closes the connection if its client has been silent for too long, or has not
// finished a message. It opens a sync window in which no place has become free for too
// long. It reports whether a ping is due.
func (c *Conn) tick(now time.Time) (pingDue bool) {
	h := c.hub
	elapsed, begun := now.Sub(h.began), c.in.begun.Load()
	if elapsed-time.Duration(c.in.lastFrame.Load()) > h.config.DeadAfter {
		c.close(ws.StatusGoingAway, "no frame has come from the client for too long")
	}
	if begun != 0 && elapsed-time.Duration(begun) > h.config.MessageTimeout {
		c.close(ws.StatusProtocolError, "a message was begun and has not come whole in time")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := h.config.SyncAckWait; c.out.stalled && wait > 0 && now.Sub(c.out.window.fullSince) > wait {
		c.out.window.open()
		c.resume()
	}
	return elapsed-time.Duration(c.out.pinged) >= h.config.PingEvery
}

func (c *Conn) ping() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.pinged, c.sendQueue().pings[0] = c.hub.elapsed(), pingFrame
	c.wakePush()
}

// statusTryAgainLater is in the IANA registry, and newer than RFC 6455.
const statusTryAgainLater ws.StatusCode = 1013

var pingFrame = appendFrame(nil, ws.OpPing, nil)
