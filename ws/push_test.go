package ws_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
)

// mustOpen opens n connections that nobody but the benchmark reads.
func (r *testRelay) mustOpen(k relay.IssuedKey, n int) (all []net.Conn) {
	r.t.Helper()
	for range n {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { c.Close() })
		io.WriteString(c, handshake(k, "sync_limit=0"))
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
		if err != nil || resp.StatusCode != 101 {
			r.t.Fatal(resp, err)
		}
		all = append(all, c)
	}
	return all
}

// One message to a Mecha with so many connections, from the send to the last arrival.
func BenchmarkPush(b *testing.B) {
	for _, sockets := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(sockets), func(b *testing.B) {
			r := mustServe(b)
			alice, bob := r.mustPair()
			payload := `{"text":"` + fmt.Sprintf("%0500d", 1) + `"}`
			var arrived, readers sync.WaitGroup
			conns := r.mustOpen(bob, sockets)
			for _, c := range conns {
				readers.Go(func() {
					in := &raw{Conn: c, t: b, r: bufio.NewReaderSize(c, 2<<10), of: r}
					for {
						if op, _, err := in.frame(); err != nil {
							return
						} else if op == opText {
							arrived.Done()
						}
					}
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				arrived.Add(sockets)
				r.mustSend(alice, "bob^test", payload)
				arrived.Wait()
			}
			b.ReportMetric(float64(b.N*sockets)/b.Elapsed().Seconds(), "arrivals/s")
			b.StopTimer()
			for _, c := range conns {
				c.Close()
			}
			readers.Wait()
		})
	}
}

// One message in and its echo out: the reader and push, without the store.
func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{32, 4 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r, bob := mustEcho(b)
			c := r.mustEchoOn(bob)
			c.SetDeadline(time.Time{})
			frame := masked(fin|opText, strings.Repeat("x", size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				c.mustWrite(frame)
				c.expectFrame(opText)
			}
		})
	}
}

// The memory of an idle connection, the benchmark's own end of it included.
func BenchmarkIdle(b *testing.B) {
	const sockets = 2000
	for range b.N {
		r := mustServe(b)
		_, bob := r.mustPair()
		r.mustOpen(bob, 10)
		inUse := func() float64 {
			heap()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc + m.StackInuse)
		}
		before := inUse()
		r.mustOpen(bob, sockets)
		b.ReportMetric((inUse()-before)/sockets, "B/socket")
		r.stop()
	}
}
