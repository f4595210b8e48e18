//go:build cluster

package cluster

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"relay/db/scratch"
)

// A wire is a proxy between two nodes. When it is cut, it stays silent: it loses what it is
// given, and ends no connection.
type wire struct {
	addr string
	l    net.Listener
	to   string
	mu   sync.Mutex
	cut  bool
	open []net.Conn
	all  sync.WaitGroup
}

// newWire returns a wire to an address.
func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: l.Addr().String(), l: l, to: to}
	w.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.all.Go(func() { w.join(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.set(false)
		w.all.Wait()
	})
	return w
}

func (w *wire) join(c net.Conn) {
	if !w.keep(c) {
		return
	}
	d, err := net.Dial("tcp", w.to)
	if err != nil {
		c.Close()
		return
	}
	if !w.keep(d) {
		return
	}
	w.all.Go(func() { w.copy(c, d) })
	w.copy(d, c)
}

// keep notes a connection, which set ends.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = append(w.open, c)
	return true
}

func (w *wire) copy(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		count, err := from.Read(buffer)
		w.mu.Lock()
		cut := w.cut
		w.mu.Unlock()
		if cut {
			io.Copy(io.Discard, from)
			return
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:count]); err != nil {
			return
		}
	}
}

// set cuts the wire, or mends it. When it is mended, the connections end that were cut.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if !cut {
		for _, c := range w.open {
			c.Close()
		}
		w.open = nil
	}
}

// A node whose wires lose all that it sends and is sent no longer has the lease. The others
// continue. A wait until an entry has been seen lasts until the lease of that node ends. When the
// wires are mended it has all entries.
func TestCutOffNode(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, "n1", "n2", "n3")
	cut := all[2]
	at := cut.config.File.Members
	wires := []*wire{newWire(t, at[0].Addr), newWire(t, at[1].Addr), newWire(t, at[2].Addr)}
	// Nodes tell each other where a third one is, so none may tell an address that leads past the wires.
	for i, m := range all {
		own := *m.config.File
		own.Members = []Member{at[0], at[1], {"n3", wires[2].addr}}
		if m == cut {
			own.Members = []Member{{"n1", wires[0].addr}, {"n2", wires[1].addr}, at[2]}
		}
		own.Members[i].Addr = scratch.Addr(t) // nobody listens there
		m.config.File, m.config.Listen = &own, at[i].Addr
	}
	startAll(all...)
	k := all[0].issue("bob^demo")
	waitLevel(all...)
	set := func(cut bool) {
		for _, w := range wires {
			w.set(cut)
		}
	}
	var began time.Time
	wait(t, "the node has the lease when it is cut off", func() bool {
		cut.waitFresh()
		for leader(all) == cut {
			cut.nats.JetStreamStepdownStream("$G", streamName) // else the others would elect one first
		}
		set(true)
		began = time.Now()
		if !cut.Fresh() { // it was lost meanwhile: at a load of 30 a node is without it for up to 3.4 s
			set(false)
			return false
		}
		return true
	})
	all[0].mustSend(k, "without it")
	number := all[0].db.Place().Applied
	sent := time.Since(began)
	if err := all[0].Seen(t.Context(), number); err != nil {
		t.Error(err)
	}
	if cut.Fresh() || cut.db.Place().Applied >= number {
		t.Error("the node has the lease, or the entry, while it is cut off, and the entry was seen")
	}
	t.Logf("the entry was made after %v, and seen after %v", sent.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	set(false)
	cut.waitFresh()
	waitLevel(all...)
	if err := all[0].Seen(t.Context(), number); err != nil {
		t.Error(err)
	}
	cut.mustSend(k, "with it")
	waitLevel(cut, all[0], all[1])
	for _, m := range all {
		m.stop()
	}
	wantSame(all...)
	wantMessages(t, cut, []string{"without it", "with it"})
}
