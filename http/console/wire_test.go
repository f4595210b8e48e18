package console_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// wire carries connections to an address, until it is cut.
type wire struct {
	addr  string
	mu    sync.Mutex
	isCut bool
	dead  chan struct{} // until it is closed, nothing is carried; nil: all is
	conns []net.Conn
}

func mustWire(t testing.TB, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.carry(c, to) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.cut(true)
		all.Wait()
	})
	return w
}

func (w *wire) carry(c net.Conn, to string) {
	defer c.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	w.mu.Lock()
	cut := w.isCut
	w.conns = append(w.conns, c, far)
	w.mu.Unlock()
	if cut {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(c, w.through(far))
		c.Close()
	})
	io.Copy(far, w.through(c))
	far.Close()
	back.Wait()
}

// through reads what another one reads, but nothing while the wire is dead.
func (w *wire) through(r io.Reader) io.Reader { return deadable{w, r} }

type deadable struct {
	w *wire
	r io.Reader
}

func (d deadable) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	d.w.mu.Lock()
	dead := d.w.dead
	d.w.mu.Unlock()
	if dead != nil {
		<-dead
	}
	return n, err
}

// die carries nothing until revive is called, and closes no connection.
func (w *wire) die() (revive func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dead := make(chan struct{})
	w.dead = dead
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dead = nil
		close(dead)
	})
}

// cut ends all connections, and new ones at once; or lets them through again.
func (w *wire) cut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut = cut; cut {
		for _, c := range w.conns {
			c.Close()
		}
		w.conns = nil
	}
}
