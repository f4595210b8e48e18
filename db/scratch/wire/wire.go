// Package wire connects the clients and servers of a test in memory, so that a test of waits, leases,
// deadlines or slowness can run in a bubble of testing/synctest. Time in a bubble stands still while
// anything works, and moves to the next timer when all goroutines of the bubble wait: a wait of an
// hour takes no time, and no slow machine makes anything late.
//
// Bubble runs a test in a bubble. A server that the test starts listens with Listen, and its clients
// dial with Dial; both use the real network for a test that is in no bubble. A Conn is like a TCP
// connection of this machine: it holds a number of unread bytes, ends in order, by half or with a
// reset, and can be cut like a cable.
//
// What waits for the system stands still in no bubble: real sockets, processes, the poller of package
// ws. A goroutine that waits for a sync.Mutex keeps the time from moving, too. Nothing made in a bubble
// may be used outside, so connections and servers are closed by the end of the test.
package wire

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"relay/db/scratch"
)

var bubbles sync.Map // the testing.TB of each test in a bubble

// Bubble runs a test in a bubble, in parallel with other tests.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bubbles.Store(t, true)
		t.Cleanup(func() {
			time.Sleep(time.Minute) // for what is just ending: time stands still when the test has returned
			bubbles.Delete(t)
		})
		test(t)
	})
}

// InBubble reports whether t is the test that Bubble runs.
func InBubble(t testing.TB) bool {
	_, in := bubbles.Load(t)
	return in
}

// File returns the path for a database of the test. In a bubble its name is so long that the store can
// open no socket for commands: a wait at that socket would keep the time from moving.
func File(t testing.TB) string {
	t.Helper()
	name := "relay"
	if InBubble(t) {
		name = strings.Repeat(name, 25)
	}
	return filepath.Join(scratch.Dir(t), name+".db")
}

// Room is how many bytes a connection in memory holds in each direction, unless its reader sets
// another number by SetReadBuffer.
const Room = 256 << 10

var (
	listeners sync.Map // by address
	given     atomic.Int64
)

// listener is in memory.
type listener struct {
	addr   *net.TCPAddr
	dialed chan *Conn
	closed chan struct{}
	once   sync.Once
}

// Listen listens in memory for a test in a bubble, else on a port of this machine.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	if !InBubble(t) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := &listener{addr: nextAddr(), dialed: make(chan *Conn, 1024), closed: make(chan struct{})}
	listeners.Store(l.addr.String(), l)
	return l
}

// inMemory begins all addresses in memory: of this machine, and where no socket listens.
const inMemory = "127.77."

// nextAddr returns an address that nobody else has.
func nextAddr() *net.TCPAddr {
	n := given.Add(1)
	return &net.TCPAddr{IP: net.IPv4(127, 77, byte(n>>22), byte(n>>14)), Port: int(n&0x3fff) + 1}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
	case c := <-l.dialed:
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *listener) Close() error {
	l.once.Do(func() {
		listeners.Delete(l.addr.String())
		close(l.closed)
		for len(l.dialed) > 0 {
			(<-l.dialed).Reset()
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

var errRefused = errors.New("connection refused")

// Dial connects to an address of Listen, in memory or not. It can be the DialContext of an
// http.Transport.
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !strings.HasPrefix(addr, inMemory) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	refused := func(err error) error { return &net.OpError{Op: "dial", Net: network, Err: err} }
	if ctx.Err() != nil {
		return nil, refused(ctx.Err())
	}
	l, ok := listeners.Load(addr)
	if !ok {
		return nil, refused(errRefused)
	}
	near, far := Pair(nextAddr(), l.(*listener).addr)
	l.(*listener).dialed <- far
	return near, nil
}
