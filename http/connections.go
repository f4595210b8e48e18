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

	"golang.org/x/time/rate"
)

// Guard bounds the connections of a listener that s serves, sockets included, to
// most; 0 is no bound. When there are as many, the next connection is accepted
// all the same and others are closed to make room: first connections that have
// not yet shown a valid key, the oldest first, then connections that are idle
// between two requests. So a client without a key cannot keep out one with a key.
// The new connection is closed at once only if all others are at work for a key.
// Accepting never waits.
func (s *Server) Guard(l net.Listener, most int) net.Listener {
	if most <= 0 {
		return l
	}
	return &door{Listener: l, most: most, all: map[*guarded]struct{}{}, log: s.config.Logger, full: rate.Sometimes{Interval: time.Minute}}
}

// door is a guarded listener.
type door struct {
	net.Listener
	most int
	seq  atomic.Int64 // numbers for guarded.state
	log  *slog.Logger
	full rate.Sometimes // limits the warnings that there is no room

	mu  sync.Mutex
	all map[*guarded]struct{}
}

// guarded is a connection that is counted until it is closed. It embeds the
// *net.TCPConn because net/http closes the writing side by its CloseWrite.
type guarded struct {
	*net.TCPConn
	door *door
	// state is 2×n for a stranger and 2×n+1 for a known connection, which is one
	// that has shown a valid key. n is a number of door.seq: taken when a stranger
	// came, or when a known connection fell idle. The lower number goes first.
	// A known connection at work has busyKnown.
	state atomic.Int64
}

const busyKnown = 1 // no n is 0

func known(state int64) bool { return state&1 != 0 }

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil
		}
		c := &guarded{TCPConn: tcp, door: d}
		c.state.Store(d.seq.Add(1) << 1)
		if d.enter(c) {
			return c, nil
		}
		tcp.Close()
	}
}

func (d *door) enter(c *guarded) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.all) >= d.most {
		closed := d.makeRoom()
		d.full.Do(func() {
			d.log.Warn("no room for more connections (--max-connections): closing the oldest without a key, then idle ones", "connections", d.most)
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
func (d *door) makeRoom() bool {
	type entry struct {
		c     *guarded
		state int64
	}
	var strangers, idle []entry
	for c := range d.all {
		switch state := c.state.Load(); {
		case !known(state):
			strangers = append(strangers, entry{c, state})
		case state != busyKnown:
			idle = append(idle, entry{c, state})
		}
	}
	chosen := strangers
	if len(strangers) == 0 {
		chosen = idle
	}
	slices.SortFunc(chosen, func(a, b entry) int { return cmp.Compare(a.state, b.state) })
	for _, e := range chosen[:min(len(chosen), max(1, d.most/64))] {
		delete(d.all, e.c)
		e.c.TCPConn.Close() // does not block; the goroutine that serves e.c gets an error, and closes it again
	}
	return len(chosen) > 0
}

// Detach closes this descriptor of the connection and frees its memory, when the
// caller has another descriptor. The connection counts until Close.
func (c *guarded) Detach() {
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	c.TCPConn.Close()
	c.TCPConn = &net.TCPConn{}
}

// Close ends the connection and gives its place back. It may be called again.
func (c *guarded) Close() error {
	c.door.mu.Lock()
	delete(c.door.all, c)
	c.door.mu.Unlock()
	return c.TCPConn.Close()
}

type guardedKey struct{}

// guardedOf returns nil for a connection that no door has accepted.
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

// vouch notes that a request has shown a valid key.
func vouch(ctx context.Context) {
	if g, _ := ctx.Value(guardedKey{}).(*guarded); g != nil && g.state.Load() != busyKnown {
		g.state.Store(busyKnown)
	}
}

// noteState is the ConnState of the http.Server: it notes whether a known
// connection is idle.
func noteState(c net.Conn, s http.ConnState) {
	g := guardedOf(c)
	if g == nil || !known(g.state.Load()) {
		return
	}
	if s == http.StateIdle {
		g.state.Store(g.door.seq.Add(1)<<1 | 1)
	} else {
		g.state.Store(busyKnown)
	}
}
