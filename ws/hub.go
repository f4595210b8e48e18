// Package ws is the relay's live side: WebSocket connections (PROTOCOL §4), and
// the hub that knows which connections and long-polls belong to which Mecha.
//
// A connection is one stream of its Mecha's incoming messages, in commit order.
// The store is the truth: a connection has a cursor and reads on from there.
// Once it has caught up, the hub hands it each new message at its commit. If it
// falls behind, it drops those messages and reads from the store again. Both
// ways are the same loop (push.go), so a resumed stream and a live one cannot
// disagree. Receipts, which are only live, go the same two ways (receipt.go).
//
// Most connections are idle. An idle one costs a small struct, and where there
// is no poller (epoll_linux.go) a goroutine that waits to read. The push
// goroutine exists only while there is something to send. One ticker of the hub
// serves all pings and time-outs.
//
// Three parts complement gobwas/ws, which reads headers, unmasks and answers handshakes (around_test.go). The
// frame reader (frame.go) continues in the middle of a frame, which the library's cannot; BenchmarkFrames shows
// that it also reads 1.7 times as many short frames, and 1.9 times as many of 4 KiB, for the same CPU. The
// poller and its sockets (epoll_linux.go) make a waiting connection take 0.8 KB, by BenchmarkWaiting, where a
// goroutine in the library's reader takes 2.0 KB, and our own without a poller 2.8. The checks of the handshake
// (handshake.go) gain no time: the library accepts malformed requests, and takes a connection over from HTTP
// before it checks any.
//
// Each of these words means one thing here. The store tells the hub that a
// transaction is committed (Committed). The hub notifies long-polls that there is
// news. To wake the reader or push of a connection is to start its goroutine,
// unless it runs.
//
// A frame of a client begins in db/relay/frame_json.go, then takeFrame (ack.go) and http/documents/asyncapi.go.
package ws

import (
	"context"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/relay"
)

// Store is the part of the store that connections use. Its methods must be safe
// for concurrent use.
type Store interface {
	// Stream reads a page of a Mecha's incoming messages, in commit order.
	Stream(context.Context, relay.StreamQuery) (relay.StreamPage, error)
	// Receipts reads a page of the changes of the messages that a Mecha has sent, in commit order.
	Receipts(context.Context, relay.ReceiptQuery) (relay.ReceiptPage, error)
	// Returned reads a page of the messages that came back to a Mecha after a deferral.
	Returned(context.Context, relay.ReturnQuery) (relay.ReturnPage, error)
	// Cursor returns the position of a message, after which a stream is to start. Error: CursorNotFound.
	Cursor(relay.MessageID) (relay.Position, error)
	// Latest returns the position of the newest committed message.
	Latest(context.Context) (relay.Position, error)
	// KeysByID reads keys; it leaves out those that do not exist. It must not wait for other reads.
	KeysByID(context.Context, []relay.KeyID) ([]*relay.Key, error)
	// AcknowledgeThen queues an acknowledgement and returns. Once it is durable or
	// refused, the store calls the function, which must not block.
	AcknowledgeThen(*relay.Acknowledge, func(relay.AckOutcome, error))
	// Pushed notes that messages were written to a socket of the key, and when the
	// write began. It must not wait.
	Pushed(relay.KeyNumber, time.Time, []relay.Position)
}

// Config says how a Hub works. Store is required; every other field may be
// zero. A limit of 0 means none.
type Config struct {
	Store              Store
	Logger             *slog.Logger     // nil: nothing is logged
	CheckFresh         func() error     // why no sockets are served just now: NotCurrent; nil: they always are
	Now                func() time.Time // the time for keys and acknowledgements; nil: time.Now
	AllowOrigins       []string         // browser origins that may connect besides the relay's own; "*" allows all
	SyncAckWait        time.Duration    // how long a full sync window waits for a free place before it opens again
	MaxSockets         int              // sockets and long-polls in all
	MaxSocketsPerMecha int              // sockets and long-polls of one Mecha
	FrameRate          float64          // frames per second that are read from all sockets of one key
	FrameBurst         int              // frames of a key that are read at once, above the rate
	PingEvery          time.Duration    // 0: 25 s
	DeadAfter          time.Duration    // a socket without a frame from its client for so long is closed; 0: 60 s
	MessageTimeout     time.Duration    // from the first byte of a client's message to the last; 0: 10 s
	WriteTimeout       time.Duration    // for each write of up to 64 KiB; 0: 10 s
	// in tests: after our close frame, how long the peer may be silent before the connection ends; 0: drainTimeout
	drain    time.Duration
	NoPoller bool // a goroutine reads each socket, as on systems without a poller
}

// Hub knows the live connections. Its methods are safe for concurrent use.
type Hub struct {
	config Config
	poller *poller       // wakes the readers; nil: a goroutine reads each socket
	stop   chan struct{} // closed by Close, which ends the ticker
	began  time.Time
	// committed is when the store told of the latest commit, as elapsed.
	committed atomic.Int64
	measures  *Measures
	sender    relay.Sender // nil: messages are not accepted
	// Close waits for wg: the ticker, checks of the keys, and each connection from
	// register until its reader and push have ended.
	wg sync.WaitGroup

	mu        sync.RWMutex // guards the fields below
	listeners map[relay.MechaNumber][]listener
	count     int // of listeners, of all Mechas
	watches   int // of those, long-polls
	meters    meters
	closed    bool

	keyCheckQueued atomic.Bool
	keyCheckFailed atomic.Bool // the ticker makes the check again
	keyCheck       sync.Mutex  // held by the check of the keys that is under way
}

// NewHub makes a hub and starts its ticker; Close ends both.
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
	if c.MessageTimeout == 0 {
		c.MessageTimeout = 10 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 10 * time.Second
	}
	if c.drain == 0 {
		c.drain = drainTimeout
	}
	h := &Hub{config: c, listeners: map[relay.MechaNumber][]listener{}, stop: make(chan struct{}),
		began: time.Now(), meters: newMeters(c.FrameRate, c.FrameBurst), measures: newMeasures()}
	if !c.NoPoller {
		h.poller = h.newPoller()
	}
	h.wg.Go(h.tick)
	if c.CheckFresh != nil {
		h.wg.Go(h.endStale)
	}
	return h
}

// staleEvery is how often the hub checks whether it may keep serving. A key that another node has
// revoked may work here for no longer than that after CheckFresh refuses.
const staleEvery = 50 * time.Millisecond

// endStale ends all listeners as soon as the store cannot report whether their keys still hold.
func (h *Hub) endStale() {
	t := time.NewTicker(staleEvery)
	defer t.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-t.C:
		}
		if err := h.config.CheckFresh(); err != nil {
			for l := range h.all() {
				l.end(err)
			}
		}
	}
}

// elapsed is the time since the hub was made, in nanoseconds. A clock that is set
// does not change it.
func (h *Hub) elapsed() int64 { return int64(time.Since(h.began)) }

// Committed tells the listeners of a commit. The store calls it in commit
// order. It does not block.
func (h *Hub) Committed(commit *relay.Commit) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(commit.Messages) > 0 {
		h.committed.Store(h.elapsed())
	}
	for _, m := range commit.Messages {
		h.notifyMessage(m)
	}
	for i := range commit.Changes {
		h.notifyChange(&commit.Changes[i])
	}
}

func (h *Hub) notifyMessage(m *relay.Message) {
	recipients := h.listeners[m.Recipient]
	var shared *sharedFrame
	if len(recipients) > 1 {
		shared = &sharedFrame{}
	}
	for _, l := range recipients {
		l.messageReceived(m, shared)
	}
	if m.Sender == m.Recipient {
		return
	}
	for _, l := range h.listeners[m.Sender] {
		l.messageSent()
	}
}

func (h *Hub) notifyChange(change *relay.Change) {
	for _, l := range h.listeners[change.Recipient] {
		l.receivedChanged(change)
	}
	senders := h.listeners[change.Sender]
	if !change.New || len(senders) == 0 {
		return
	}
	r := &receipt{change: change}
	for _, l := range senders {
		l.sentChanged(r)
	}
}

// Online reports whether a Mecha has a socket or a long-poll open.
func (h *Hub) Online(id relay.MechaNumber) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.listeners[id] != nil
}

// register adds a listener, within the limits, and unless CheckFresh refuses. From then on Close waits until
// the caller, or a goroutine that takes over from it, calls h.wg.Done.
func (h *Hub) register(l listener) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		e := relay.Errorf(relay.ShuttingDown, "the relay is shutting down")
		e.RetryAfter = time.Second
		return e
	}
	if h.config.CheckFresh != nil {
		if err := h.config.CheckFresh(); err != nil {
			return err
		}
	}
	id := l.mechaID()
	if n := len(h.listeners[id]); h.config.MaxSocketsPerMecha > 0 && n >= h.config.MaxSocketsPerMecha {
		e := relay.Errorf(relay.TooManySockets, "this Mecha has %d sockets and long-polls open, which is the limit", n)
		e.RetryAfter = 5 * time.Second
		return e
	}
	if h.config.MaxSockets > 0 && h.count >= h.config.MaxSockets {
		e := relay.Errorf(relay.TooManySockets, "the relay has %d sockets and long-polls open, which is the limit", h.count)
		e.Global, e.RetryAfter = true, 5*time.Second
		return e
	}
	h.listeners[id] = append(h.listeners[id], l)
	h.count++
	h.wg.Add(1)
	if c, ok := l.(*Conn); ok {
		c.in.meter = h.meters.join(c.key.Number)
	} else {
		h.watches++
	}
	h.shareAnswers(id)
	return nil
}

const (
	mechaAnswers = 512 // answers that may be due to all sockets of a Mecha
	maxAnswers   = 256 // to one of them
	minAnswers   = 16  // to one of them, however many there are
)

// shareAnswers divides the answers that may be due to a Mecha among its listeners. So
// one Mecha has few acknowledgements in the store's queue, however many sockets it
// opens. h.mu is held.
func (h *Hub) shareAnswers(id relay.MechaNumber) {
	all := h.listeners[id]
	share := int32(min(max(mechaAnswers/max(len(all), 1), minAnswers), maxAnswers))
	if len(all) > 2*mechaAnswers/minAnswers {
		all = all[len(all)-1:] // the others have the least share already
	}
	for _, l := range all {
		if c, ok := l.(*Conn); ok {
			c.in.maxDue.Store(share)
		}
	}
}

func (h *Hub) unregister(l listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count--
	id := l.mechaID()
	rest := slices.DeleteFunc(h.listeners[id], func(x listener) bool { return x == l })
	if len(rest) == 0 {
		delete(h.listeners, id)
	} else {
		h.listeners[id] = rest
	}
	if c, ok := l.(*Conn); ok {
		h.meters.leave(c.key.Number)
	} else {
		h.watches--
	}
	h.shareAnswers(id)
}

// all yields every listener. The hub is locked meanwhile, so the caller must
// not block, register or unregister.
func (h *Hub) all() iter.Seq[listener] {
	return func(yield func(listener) bool) {
		h.mu.RLock()
		defer h.mu.RUnlock()
		for _, listeners := range h.listeners {
			for _, l := range listeners {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// conns yields the listeners that are connections, and locks the hub like all.
// Only they have pings and time-outs: the connection of a long-poll is HTTP's.
func (h *Hub) conns() iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for l := range h.all() {
			if c, ok := l.(*Conn); ok && !yield(c) {
				return
			}
		}
	}
}

// tick does the timed work until Close: pings, time-outs, keys that expire.
func (h *Hub) tick() {
	every := min(time.Second, h.config.PingEvery/4, h.config.DeadAfter/4, h.config.MessageTimeout/4)
	if h.config.SyncAckWait > 0 {
		every = min(every, h.config.SyncAckWait/4)
	}
	t := time.NewTicker(max(every, 10*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-t.C:
		}
		now := time.Now() // not config.Now: frames and pings are timed by the real clock
		var due []*Conn
		for c := range h.conns() {
			if c.tick(now) {
				due = append(due, c)
			}
		}
		h.endKeys(h.keysOver())
		if h.keyCheckFailed.Swap(false) {
			h.CheckKeys()
		}
		h.forgetMeters()
		ping(due)
	}
}

func (h *Hub) forgetMeters() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.meters.forget(h.elapsed())
}

// ping pings connections, a few at a time. Connections that were opened
// together, say after a restart, are due together, and each ping takes a
// goroutine for a moment.
func ping(due []*Conn) {
	for i, c := range due {
		c.ping()
		if i%64 == 63 {
			runtime.Gosched()
		}
	}
}

// Close ends every long-poll, closes every connection with 1001 (RFC 6455
// §7.4.1), and waits for them until ctx ends. Then it cuts the connections that
// are left. It returns when every goroutine of the hub has ended. It may be called
// more than once.
func (h *Hub) Close(ctx context.Context) {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.stop)
	}
	h.mu.Unlock()
	for l := range h.all() {
		l.end(nil)
	}
	done := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		for c := range h.conns() {
			c.kill()
		}
		<-done
	}
	h.poller.close()
}
