package http

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/relay"

	"golang.org/x/time/rate"
)

// Guard bounds the connections of a listener that s serves, sockets included, to limit; 0 means no limit. When
// there are as many, the next connection is still accepted and others are closed to make room:
//
//  1. Connections that have not yet shown a valid key, the oldest first.
//  2. Connections of the Mecha that holds most, with all its keys: first the ones that
//     are idle between two requests, the longest idle first; then, as long as the Mecha
//     holds more than enough, the ones that wait for a client which sends a body or
//     takes an answer slowly.
//
// So a client without a key cannot keep out one with a key, and one Mecha cannot
// take the connections of another. A connection is never closed while the relay
// works for it, and a WebSocket never: the hub bounds the WebSockets. The new connection is
// closed at once only if nothing else may be. Accepting never waits.
func (s *Server) Guard(l net.Listener, limit int) net.Listener {
	if limit <= 0 {
		return l
	}
	return &guardedListener{Listener: l, limit: limit, log: s.config.Logger, full: rate.Sometimes{Interval: time.Minute},
		all: map[*guarded]struct{}{}, holders: map[relay.MechaNumber]*holder{}}
}

// guardedListener accepts and counts the connections that Guard bounds.
type guardedListener struct {
	net.Listener
	limit int
	seq   atomic.Int64 // numbers for guarded.state
	log   *slog.Logger
	full  rate.Sometimes // limits the warnings that there is no room

	mu      sync.Mutex
	all     map[*guarded]struct{}
	holders map[relay.MechaNumber]*holder // the Mechas of the connections in all
}

const (
	// bodyShare: bodies of more than 1/bodyShare of all connections may not arrive
	// for one Mecha at the same time.
	bodyShare = 8
	// enough connections, or bodies that arrive, are left to a Mecha however small
	// the limit is.
	enough = 16
)

// holder is a Mecha that has connections.
type holder struct {
	mecha       relay.MechaNumber
	connections int          // guarded by guardedListener.mu
	bodies      atomic.Int64 // requests whose body is arriving
}

// guarded is a connection that is counted until it is closed. It embeds the
// *net.TCPConn because net/http closes the writing side by its CloseWrite.
type guarded struct {
	*net.TCPConn
	listener *guardedListener
	// holder is the Mecha of the latest request that has shown a valid key, nil if
	// none has. The goroutine that serves the connection sets it, under listener.mu.
	holder *holder
	// state is a connState and, above connStateBits, a number of listener.seq: taken when
	// the connection came, and again whenever it falls idle. The lower number goes first.
	state   atomic.Int64
	framing framing // of the goroutine that serves the connection
}

// connState says what a connection waits for.
type connState int64

const (
	stranger connState = iota // for a valid key
	idle                      // for the next request
	waiting                   // for its client, which sends a body or takes an answer
	working                   // for the relay
	hijacked                  // for frames: it is a WebSocket, and for good
	evicted                   // for nothing: it has been closed to make room, for good

	connStateBits = 3
)

func stateOf(v int64) connState { return connState(v & (1<<connStateBits - 1)) }

// become sets the state, and keeps the number. It is false if the connection has
// been closed to make room. The goroutine that serves the connection calls it.
func (c *guarded) become(s connState) bool {
	old := c.state.Load()
	if o := stateOf(old); o == s || o >= hijacked {
		return o != evicted
	}
	return c.state.CompareAndSwap(old, old>>connStateBits<<connStateBits|int64(s))
}

// Accept implements net.Listener.
func (d *guardedListener) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil
		}
		c := &guarded{TCPConn: tcp, listener: d}
		c.state.Store(d.seq.Add(1) << connStateBits)
		if d.enter(c) {
			return c, nil
		}
		tcp.Close()
	}
}

func (d *guardedListener) enter(c *guarded) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.all) >= d.limit {
		closed := d.makeRoom()
		d.full.Do(func() {
			d.log.Warn("no room for more connections (--max-connections): closing the oldest without a key, "+
				"then those of the Mecha that holds most", "connections", d.limit)
		})
		if !closed {
			return false
		}
	}
	d.all[c] = struct{}{}
	return true
}

// makeRoom closes connections, if any may be closed. It closes several, since it
// has to look at all of them to find one. The caller holds d.mu.
func (d *guardedListener) makeRoom() bool {
	room := max(1, d.limit/64)
	closed := 0
	for _, e := range d.closable() {
		if closed == room {
			break
		}
		if e.c.state.CompareAndSwap(e.state, int64(evicted)) { // else it has just begun to work
			d.remove(e.c)
			e.c.TCPConn.Close() // does not block; the goroutine that serves e.c gets an error, and closes it again
			closed++
		}
	}
	return closed > 0
}

type closable struct {
	c     *guarded
	state int64
	// rank is how many connections its Mecha has if it first gives up all that come
	// before this one.
	rank int
}

// closable lists the connections that may be closed, in the order of Guard. The
// caller holds d.mu.
func (d *guardedListener) closable() []closable {
	var strangers, known []closable
	for c := range d.all {
		switch e := (closable{c: c, state: c.state.Load()}); stateOf(e.state) {
		case stranger:
			strangers = append(strangers, e)
		case idle, waiting:
			known = append(known, e)
		}
	}
	if len(strangers) > 0 {
		slices.SortFunc(strangers, func(a, b closable) int { return cmp.Compare(a.state, b.state) })
		return strangers
	}
	slices.SortFunc(known, func(a, b closable) int {
		return cmp.Or(cmp.Compare(stateOf(a.state), stateOf(b.state)), cmp.Compare(a.state, b.state))
	})
	given := map[*holder]int{}
	for i := range known {
		h := known[i].c.holder
		known[i].rank = h.connections - given[h]
		given[h]++
	}
	known = slices.DeleteFunc(known, func(e closable) bool { return stateOf(e.state) == waiting && e.rank <= enough })
	slices.SortStableFunc(known, func(a, b closable) int { return cmp.Compare(b.rank, a.rank) })
	return known
}

// remove ends the counting of a connection. It may be called again. The caller
// holds d.mu.
func (d *guardedListener) remove(c *guarded) {
	if _, counted := d.all[c]; !counted {
		return
	}
	delete(d.all, c)
	d.release(c)
}

func (d *guardedListener) release(c *guarded) {
	if h := c.holder; h != nil {
		if h.connections--; h.connections == 0 {
			delete(d.holders, h.mecha)
		}
	}
}

// assign counts a connection for a Mecha, in place of the one before.
func (d *guardedListener) assign(c *guarded, m relay.MechaNumber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, counted := d.all[c]; !counted {
		c.holder = &holder{mecha: m} // it is being closed
		return
	}
	d.release(c)
	h := d.holders[m]
	if h == nil {
		h = &holder{mecha: m}
		d.holders[m] = h
	}
	h.connections++
	c.holder = h
}

// Detach closes this descriptor of the connection and frees its memory, when the
// caller has another descriptor. The connection counts until Close.
func (c *guarded) Detach() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.TCPConn.Close()
	c.TCPConn = &net.TCPConn{}
}

// Close ends the connection and gives its place back. It may be called again.
func (c *guarded) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}

type guardedKey struct{}

// guardedOf returns nil for a connection that no guardedListener has accepted.
func guardedOf(c net.Conn) *guarded {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	g, _ := c.(*guarded)
	return g
}

// withConnection is the ConnContext of the http.Server: requests find their
// connection by it.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if g := guardedOf(c); g != nil {
		return context.WithValue(ctx, guardedKey{}, g)
	}
	return ctx
}

// connection returns nil for a request that did not come through a guardedListener.
func connection(ctx context.Context) *guarded {
	c, _ := ctx.Value(guardedKey{}).(*guarded)
	return c
}

// vouch notes that a request has shown a valid key of a Mecha. c may be nil.
func (c *guarded) vouch(m relay.MechaNumber) {
	if c == nil {
		return
	}
	if c.holder == nil || c.holder.mecha != m {
		c.listener.assign(c, m)
	}
	c.become(waiting)
}

// beginBody counts a body of the connection's Mecha until endBody. It is false if
// too many are arriving already. c may be nil.
func (c *guarded) beginBody() bool {
	if c == nil || c.holder.bodies.Add(1) <= int64(c.listener.maxBodies()) {
		return true
	}
	c.endBody()
	return false
}

func (c *guarded) endBody() {
	if c != nil {
		c.holder.bodies.Add(-1)
	}
}

func (d *guardedListener) maxBodies() int { return max(d.limit/bodyShare, enough) }

// beginWork keeps the connection from being closed until endWork. It is false if
// that has happened. c may be nil.
func (c *guarded) beginWork() bool { return c == nil || c.become(working) }

// endWork may be called without beginWork, and again.
func (c *guarded) endWork() {
	if c != nil && stateOf(c.state.Load()) == working {
		c.become(waiting)
	}
}

// noteState is the ConnState of the http.Server: it notes whether a connection that
// has shown a key is idle, or no longer the server's.
func noteState(conn net.Conn, s http.ConnState) {
	c := guardedOf(conn)
	if c == nil {
		return
	}
	if s == http.StateIdle {
		c.framing.end()
	}
	switch old := c.state.Load(); {
	case stateOf(old) == stranger || stateOf(old) == evicted:
	case s == http.StateIdle:
		c.state.CompareAndSwap(old, c.listener.seq.Add(1)<<connStateBits|int64(idle))
	case s == http.StateActive:
		c.become(waiting)
	case s == http.StateHijacked:
		c.become(hijacked)
	}
}
