// Package ws is the relay's live side: WebSocket connections (PROTOCOL §4) and
// the hub that knows which of them belong to which Mecha.
//
// A connection is one stream of its Mecha's incoming messages in commit order.
// The file is the truth: a connection has a cursor and reads on from it. When
// it has caught up, the hub hands it new messages as they are committed; when
// it falls behind, it forgets what it was handed and reads from the file again.
// Both are the same loop (push.go), so resume and live cannot disagree.
//
// An idle connection costs a small struct, and a goroutine that waits to read
// where there is no poller (epoll_linux.go). The push goroutine exists only
// while there is something to send; one ticker of the hub serves all pings and
// time-outs.
package ws

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/relay"

	"github.com/gobwas/ws"
)

// Inbox is what the connections need of the store. *db.DB is one.
type Inbox interface {
	Stream(context.Context, relay.StreamQuery) (relay.StreamPage, error)
	Cursor(relay.MessageID) (relay.Position, error)
	Latest(context.Context) (relay.Position, error)
	KeyByID(context.Context, relay.KeyID) (*relay.Key, error)
	AcknowledgeThen(*relay.Acknowledge, func(relay.AckOutcome, error))
	Pushed(*relay.Key, time.Time, []relay.Position)
}

// Config is what a Hub needs; Inbox is required. A limit of 0 means none.
type Config struct {
	Inbox              Inbox
	Logger             *slog.Logger
	Now                func() time.Time
	AllowOrigins       []string
	SyncAckWait        time.Duration // how long a full window waits for a first ack
	MaxSockets         int           // in all, long-polls included
	MaxSocketsPerMecha int
	FrameRate          float64 // inbound frames per second and socket
	FrameBurst         int
	PingEvery          time.Duration // default 25 s
	DeadAfter          time.Duration // without a frame; default 60 s
	WriteTimeout       time.Duration // of up to 64 KiB; default 10 s
	NoPoller           bool          // a goroutine reads each socket, as where there is no poller
}

// Hub knows the live connections. Its methods are safe for concurrent use.
type Hub struct {
	Config
	mu      sync.RWMutex
	boxes   map[relay.MechaID]*box
	count   int // sockets and long-polls
	closed  bool
	stop    chan struct{}
	wg      sync.WaitGroup // connections' goroutines, readers and pushes; the ticker; checks of keys
	checked atomic.Bool    // a check of the keys is queued
	check   sync.Mutex     // held by the check under way
	poller  *poller        // nil: a goroutine reads each socket
	// reply, in tests, makes the frame that answers a message of any kind, which
	// then is no acknowledgement; nil otherwise.
	reply func(ws.OpCode, []byte) []byte
}

// box is the connections and long-polls of one Mecha.
type box struct {
	conns   []*Conn
	watches []*watch
}

// watch is a long-poll.
type watch struct {
	key    *relay.Key
	latest atomic.Pointer[relay.Key] // as in Conn
	wake   chan struct{}
	ended  chan error
}

// NewHub makes a hub and starts its ticker; Close ends it.
func NewHub(c Config) *Hub {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.PingEvery == 0 {
		c.PingEvery = 25 * time.Second
	}
	if c.DeadAfter == 0 {
		c.DeadAfter = 60 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 10 * time.Second
	}
	h := &Hub{Config: c, boxes: map[relay.MechaID]*box{}, stop: make(chan struct{})}
	if !c.NoPoller {
		h.poller = h.newPoller()
	}
	h.wg.Go(h.tick)
	return h
}

// Ring tells the connections of a commit. The store calls it in commit order;
// it does not block.
func (h *Hub) Ring(commit *relay.Commit) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, m := range commit.Messages {
		if b := h.boxes[m.Recipient]; b != nil {
			var frame *sharedFrame
			if len(b.conns) > 1 {
				frame = &sharedFrame{}
			}
			for _, c := range b.conns {
				c.offer(m, frame)
			}
			b.wake()
		}
		if m.Sender != m.Recipient {
			h.boxes[m.Sender].wake()
		}
	}
	for i := range commit.Changes {
		h.ringChange(&commit.Changes[i])
	}
}

func (h *Hub) ringChange(change *relay.Change) {
	if b := h.boxes[change.Recipient]; b != nil {
		for _, c := range b.conns {
			c.freed(change)
		}
		b.wake()
	}
	b := h.boxes[change.Sender]
	if b == nil || !change.New {
		return
	}
	var frame []byte // made once
	for _, c := range b.conns {
		if !c.session.receipts {
			continue
		}
		if frame == nil {
			frame = receiptFrame(change)
		}
		c.receipt(frame)
	}
	b.wake()
}

// wake tells the long-polls to look again. It is fine with no box.
func (b *box) wake() {
	if b == nil {
		return
	}
	for _, w := range b.watches {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Online tells whether a Mecha has a socket or a long-poll open.
func (h *Hub) Online(id relay.MechaID) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.boxes[id] != nil
}

// register counts a connection or long-poll in, within the limits.
func (h *Hub) register(id relay.MechaID, c *Conn, w *watch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		e := relay.Errorf(relay.ShuttingDown, "the relay is shutting down")
		e.RetryAfter = time.Second
		return e
	}
	b := h.boxes[id]
	if b == nil {
		b = &box{}
	}
	if n := len(b.conns) + len(b.watches); h.MaxSocketsPerMecha > 0 && n >= h.MaxSocketsPerMecha {
		e := relay.Errorf(relay.TooManySockets, "this Mecha has %d sockets and long-polls open; that is the limit", n)
		e.RetryAfter = 5 * time.Second
		return e
	}
	if h.MaxSockets > 0 && h.count >= h.MaxSockets {
		e := relay.Errorf(relay.TooManySockets, "the relay has %d sockets and long-polls open; that is the limit", h.count)
		e.Global, e.RetryAfter = true, 5*time.Second
		return e
	}
	h.boxes[id] = b
	h.count++
	if c != nil {
		b.conns = append(b.conns, c)
		h.wg.Add(1) // until the connection's reader has ended
	} else {
		b.watches = append(b.watches, w)
	}
	return nil
}

func (h *Hub) unregister(id relay.MechaID, c *Conn, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.boxes[id]
	h.count--
	if c != nil {
		b.conns = slices.DeleteFunc(b.conns, func(x *Conn) bool { return x == c })
	} else {
		b.watches = slices.DeleteFunc(b.watches, func(x *watch) bool { return x == w })
	}
	if len(b.conns)+len(b.watches) == 0 {
		delete(h.boxes, id)
	}
}

// Watch counts in a long-poll of the key's Mecha. wake yields when something
// has happened to its messages; ended yields once if the watch must end: with
// the reason, or nil at shutdown. stop must be called. Errors: TooManySockets,
// ShuttingDown, KeyRevoked, KeyExpired.
func (h *Hub) Watch(key *relay.Key) (wake <-chan struct{}, ended <-chan error, stop func(), err error) {
	w := &watch{key: key, wake: make(chan struct{}, 1), ended: make(chan error, 1)}
	w.latest.Store(key)
	if err := h.register(key.Mecha.ID, nil, w); err != nil {
		return nil, nil, nil, err
	}
	k, err := h.checkKey(key.ID)
	if err != nil {
		h.unregister(key.Mecha.ID, nil, w)
		return nil, nil, nil, err
	}
	w.latest.CompareAndSwap(key, k)
	return w.wake, w.ended, func() { h.unregister(key.Mecha.ID, nil, w) }, nil
}

func (w *watch) end(err error) {
	select {
	case w.ended <- err:
	default:
	}
}

// checkKey reads a key afresh and refuses one that no longer holds.
func (h *Hub) checkKey(id relay.KeyID) (*relay.Key, error) {
	k, err := h.Inbox.KeyByID(context.Background(), id)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, relay.Errorf(relay.KeyRevoked, "the key %s has been removed", id)
	}
	return k, k.Check(h.Now())
}

// CheckKeys closes the connections whose key no longer holds, and notes until
// when the others do. It returns at once; the store calls it when keys have changed.
func (h *Hub) CheckKeys() {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed || !h.checked.CompareAndSwap(false, true) {
		return
	}
	h.wg.Go(func() {
		h.check.Lock() // one after the other, or an older answer might come last
		defer h.check.Unlock()
		h.checked.Store(false)
		good, bad := map[relay.KeyID]*relay.Key{}, map[relay.KeyID]error{}
		for id := range h.keysInUse() {
			k, err := h.checkKey(id)
			switch code := relay.ErrorCode(err); code {
			case "":
				good[id] = k
			case relay.KeyRevoked, relay.KeyExpired:
				bad[id] = err
			default:
				h.Logger.Error("cannot check the key of a connection", "key", id, "error", err)
			}
		}
		h.renewKeys(good)
		h.endKeys(bad)
	})
}

func (h *Hub) keysInUse() map[relay.KeyID]bool {
	ids := map[relay.KeyID]bool{}
	h.each(func(c *Conn) { ids[c.key.ID] = true }, func(w *watch) { ids[w.key.ID] = true })
	return ids
}

func (h *Hub) renewKeys(good map[relay.KeyID]*relay.Key) {
	h.each(func(c *Conn) {
		if k := good[c.key.ID]; k != nil {
			c.latest.Store(k)
		}
	}, func(w *watch) {
		if k := good[w.key.ID]; k != nil {
			w.latest.Store(k)
		}
	})
}

func (h *Hub) endKeys(bad map[relay.KeyID]error) {
	if len(bad) == 0 {
		return
	}
	h.each(func(c *Conn) {
		if err := bad[c.key.ID]; err != nil {
			c.close(ws.StatusPolicyViolation, string(relay.ErrorCode(err)))
		}
	}, func(w *watch) {
		if err := bad[w.key.ID]; err != nil {
			w.end(err)
		}
	})
}

// each visits what is registered now.
func (h *Hub) each(conn func(*Conn), poll func(*watch)) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, b := range h.boxes {
		for _, c := range b.conns {
			conn(c)
		}
		for _, w := range b.watches {
			poll(w)
		}
	}
}

// tick serves what depends on time, for all connections.
func (h *Hub) tick() {
	every := min(time.Second, h.PingEvery/4, h.DeadAfter/4)
	if h.SyncAckWait > 0 {
		every = min(every, h.SyncAckWait/4)
	}
	t := time.NewTicker(max(every, 10*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-t.C:
		}
		now, real := h.Now(), time.Now()
		bad := map[relay.KeyID]error{}
		var due []*Conn
		h.each(func(c *Conn) {
			if c.tick(real) {
				due = append(due, c)
			}
			if err := c.latest.Load().Check(now); err != nil {
				bad[c.key.ID] = err
			}
		}, func(w *watch) {
			if err := w.latest.Load().Check(now); err != nil {
				bad[w.key.ID] = err
			}
		})
		h.endKeys(bad)
		ping(due, real)
	}
}

// ping pings connections, a few at a time: those that came together, say after
// a restart, are due together, and each takes a goroutine for a moment.
func ping(due []*Conn, now time.Time) {
	for i, c := range due {
		c.ping(now)
		if i%64 == 63 {
			runtime.Gosched()
		}
	}
}

// Close tells every connection that the server goes away (1001), waits for
// them until ctx ends, then cuts those that are left. It returns when every
// goroutine of the hub has ended.
func (h *Hub) Close(ctx context.Context) {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.stop)
	}
	h.mu.Unlock()
	h.each(func(c *Conn) { c.close(ws.StatusGoingAway, "the relay is shutting down") }, func(w *watch) { w.end(nil) })
	done := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		h.each(func(c *Conn) { c.kill() }, func(*watch) {})
		<-done
	}
	h.poller.close()
}
