package ws

import (
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/gobwas/ws/wsutil"
	"golang.org/x/sys/unix"

	"relay/db/relay"
)

// The ways in which a connection waits for its client.
const (
	byPoller    = "poller"    // ours
	byGoroutine = "goroutine" // ours without a poller
	byGobwas    = "gobwas"    // a goroutine in gobwas' function, as its documentation shows
)

// memoryOfIdle returns how many bytes of the process's memory each of n connections takes on
// which nothing happens. Their clients take none.
func memoryOfIdle(t testing.TB, way string, n int) float64 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := NewHub(Config{PingEvery: time.Hour, DeadAfter: time.Hour, NoPoller: way != byPoller})
	defer h.Close(t.Context())
	if way == byPoller && h.poller == nil {
		t.Fatal("there is no poller: see newPoller")
	}
	var conns []interface{ Close() error }
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	peers := make([]int, 0, n)
	defer func() {
		for _, fd := range peers {
			unix.Close(fd)
		}
	}()
	conns = make([]interface{ Close() error }, 0, n)
	key, before, goroutines := &relay.Key{}, liveMemory(), runtime.NumGoroutine()
	for range n {
		peers = append(peers, mustDialRaw(t, l.Addr().(*net.TCPAddr).Port))
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if way == byGobwas {
			conns = append(conns, conn)
			go wsutil.ReadClientData(conn)
			continue
		}
		c := h.newConn(key, session{}, takeFrame)
		if err := h.register(c); err != nil {
			t.Fatal(err)
		}
		c.begin(conn, nil)
	}
	for way == byPoller && runtime.NumGoroutine() > goroutines { // each ends when the poller has its connection
		runtime.Gosched()
	}
	return (liveMemory() - before) / float64(n)
}

// liveMemory returns the bytes of the heap that are in use, and those of the stacks.
func liveMemory() float64 {
	runtime.GC()
	runtime.GC() // which empties the pools, and gives unused stacks back
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// mustDialRaw opens a connection that Go's runtime does not know of.
func mustDialRaw(t testing.TB, port int) (fd int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// BenchmarkWaiting says what a connection takes on which nothing happens.
func BenchmarkWaiting(b *testing.B) {
	const n = 2000
	for _, way := range []string{byPoller, byGoroutine, byGobwas} {
		b.Run(fmt.Sprintf("%d/%s", n, way), func(b *testing.B) {
			sum := 0.0
			for range b.N {
				sum += memoryOfIdle(b, way, n)
			}
			b.ReportMetric(sum/float64(b.N), "B/connection")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// The poller exists because it saves memory. If it does not any more, a new version of Go may
// have changed how it manages descriptors (duplicate, newSocket), or has small connections itself.
func TestAConnectionThatThePollerWaitsForIsSmall(t *testing.T) {
	const n = 1000
	polled, gobwas := memoryOfIdle(t, byPoller, n), memoryOfIdle(t, byGobwas, n)
	if polled > gobwas*2/3 {
		t.Errorf("a connection takes %.0f bytes with our poller, and %.0f with a goroutine of gobwas/ws", polled, gobwas)
	}
}
