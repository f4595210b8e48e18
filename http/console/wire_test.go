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
		io.Copy(c, far)
		c.Close()
	})
	io.Copy(far, c)
	far.Close()
	back.Wait()
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
