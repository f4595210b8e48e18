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

// Guard bounds the connections of a listener that s serves, sockets included.
// When all are taken, the next one is let in all the same, and room is made:
// connections that have not yet shown a key that holds go first, oldest first;
// then those that are idle between two requests. So whoever has no key cannot
// keep out those who have one. Only if every connection is at work for a key is
// the new one closed at once; acceptance never waits. 0: no bound.
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
	seq  atomic.Int64
	log  *slog.Logger
	full rate.Sometimes // says so

	mu  sync.Mutex
	all map[*guarded]struct{}
}

// guarded is a connection that is counted until it is closed. That it is a
// *net.TCPConn too is what net/http closes its writing side by.
type guarded struct {
	*net.TCPConn
	door *door
	// state is twice a number of door.seq, which tells who was first, plus 1 once
	// the connection is known: to have shown a key. Of a stranger it is when it
	// came, of a known one when it fell idle; known and busy is busyKnown.
	state atomic.Int64
}

const busyKnown = 1

func known(state int64) bool { return state&1 != 0 }

// Accept is net.Listener's.
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
			d.log.Warn("all connections are taken (--max-connections): the oldest without a key, or else idle ones, are closed for new ones", "connections", d.most)
		})
		if !closed {
			return false
		}
	}
	d.all[c] = struct{}{}
	return true
}

// makeRoom closes some connections at once, for it looks at all to find them. d.mu is held.
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
		e.c.TCPConn.Close() // it does not block; whoever reads or writes ends, and closes it again
	}
	return len(chosen) > 0
}

// Detach closes this descriptor of the connection, for somebody has another, and
// gives back its memory. It is counted until Close.
func (c *guarded) Detach() {
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	c.TCPConn.Close()
	c.TCPConn = &net.TCPConn{}
}

// Close ends the connection and gives its place back.
func (c *guarded) Close() error {
	c.door.mu.Lock()
	delete(c.door.all, c)
	c.door.mu.Unlock()
	return c.TCPConn.Close()
}

type guardedKey struct{}

func guardedOf(c net.Conn) *guarded {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	g, _ := c.(*guarded)
	return g
}

// withConnection lets requests find their connection (http.Server.ConnContext).
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if g := guardedOf(c); g != nil {
		return context.WithValue(ctx, guardedKey{}, g)
	}
	return ctx
}

// vouch notes that a request has shown a key that holds.
func vouch(ctx context.Context) {
	if g, _ := ctx.Value(guardedKey{}).(*guarded); g != nil && g.state.Load() != busyKnown {
		g.state.Store(busyKnown)
	}
}

// noteState notes when a known connection falls idle, and that it no longer is (http.Server.ConnState).
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
