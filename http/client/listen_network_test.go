package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/scratch/wire"
	"relay/http/client"
)

// Links are cut again and again, and each message is handled once: what the relay pushes
// again is recognised.
func TestAListenerOutlivesCutLinks(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		f := newFront(t, r)
		const n = 120
		var mu sync.Mutex
		times := map[string]int{}
		half, done := make(chan struct{}), make(chan struct{})
		listen(t, bob.at(f.url), client.ListenOptions{Jobs: 4}, func(ctx context.Context, m *client.Message) error {
			mu.Lock()
			defer mu.Unlock()
			times[m.ID]++
			switch len(times) {
			case n / 2:
				close(half)
			case n:
				close(done)
			}
			if len(times)%10 == 0 {
				f.cut()
			}
			return nil
		})
		var ids []string
		for range n {
			ids = append(ids, alice.mustSend(bob, `{}`).MessageID)
		}
		<-half
		f.cut()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("%d are handled", len(times))
		}
		for _, id := range ids {
			bob.awaitAck(id, "completed")
		}
		mu.Lock()
		defer mu.Unlock()
		for id, n := range times {
			if n != 1 {
				t.Errorf("%s was handled %d times", id, n)
			}
		}
	})
}

// twice is a network that can bring once more what the relay has sent on a socket.
func twice(t *testing.T, r *testRelay) (address string, again func()) {
	t.Helper()
	l := wire.Listen(t)
	t.Cleanup(func() { l.Close() })
	var mu sync.Mutex
	var frames bytes.Buffer
	var socket net.Conn
	pass := func(in net.Conn) {
		defer in.Close()
		out, err := wire.Dial(context.Background(), "tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			return
		}
		defer out.Close()
		go func() { io.Copy(out, in); out.Close() }()
		var head bytes.Buffer
		for b := make([]byte, 64<<10); ; {
			n, err := out.Read(b)
			if err != nil {
				return
			}
			mu.Lock()
			rest := b[:n]
			if socket != in && head.Len() < 8<<10 {
				head.Write(b[:n])
				if _, after, ok := bytes.Cut(head.Bytes(), []byte("\r\n\r\n")); ok && bytes.HasPrefix(head.Bytes(), []byte("HTTP/1.1 101")) {
					socket, rest = in, nil
					frames.Write(after)
				}
			}
			if socket == in {
				frames.Write(rest)
			}
			in.Write(b[:n])
			mu.Unlock()
		}
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go pass(in)
		}
	}()
	return "http://" + l.Addr().String(), func() {
		mu.Lock()
		defer mu.Unlock()
		socket.Write(frames.Bytes())
	}
}

func TestAMessageThatIsPushedTwiceIsHandledOnce(t *testing.T) {
	for name, o := range map[string]client.ListenOptions{"acknowledged": {}, "pending": {Ack: client.NoAck}, "progress": {Ack: "received", State: t.TempDir() + "/state"}} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				r := mustServe(t)
				alice, bob := r.mustPair()
				address, again := twice(t, r)
				handled := make(chan string, 100)
				listen(t, bob.at(address), o, func(_ context.Context, m *client.Message) error {
					handled <- m.ID
					return nil
				})
				first := alice.mustSend(bob, `{}`).MessageID
				expect := func(id string) {
					t.Helper()
					select {
					case got := <-handled:
						if got != id {
							t.Fatalf("%s was handled, want %s", got, id)
						}
					case <-time.After(patience):
						t.Fatal("nothing is handled")
					}
				}
				expect(first)
				switch name {
				case "acknowledged":
					bob.awaitAck(first, "completed")
				case "progress":
					bob.awaitAck(first, "received")
				}
				again()
				again()
				expect(alice.mustSend(bob, `{}`).MessageID)
				expect(alice.mustSend(bob, `{}`).MessageID)
			})
		})
	}
}

// A proxy that does not know WebSockets: the listener asks the history.
func TestWithoutWebSockets(t *testing.T) {
	for name, letsPass := range map[string]func(nethttp.Header) bool{
		"takes the header away": func(h nethttp.Header) bool { h.Del("Upgrade"); return true },
		"refuses":               func(h nethttp.Header) bool { return h.Get("Upgrade") == "" },
	} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				r := mustServe(t)
				alice, bob := r.mustPair()
				proxy := newProxy(t, r.url)
				front := mustServeOther(t, func(w nethttp.ResponseWriter, q *nethttp.Request) {
					if !letsPass(q.Header) {
						w.WriteHeader(nethttp.StatusForbidden)
						return
					}
					proxy.ServeHTTP(w, q)
				})
				before := alice.mustSend(bob, `{"n":1}`).MessageID
				times := map[string]int{}
				l := listen(t, bob.at(front), client.ListenOptions{}, func(ctx context.Context, m *client.Message) error {
					times[fmt.Sprint(m.ID, m.Attempt)]++
					if string(m.Payload) == `{"n":2}` && m.Attempt == 1 {
						return m.Defer(ctx, time.Second)
					}
					return m.Reply(ctx, struct{}{})
				})
				if e := l.await(client.Connected); !e.Polling {
					t.Errorf("%+v", e)
				}
				bob.awaitAck(before, "completed")
				put, now := alice.mustSend(bob, `{"n":2}`).MessageID, alice.mustSend(bob, `{"n":3}`).MessageID
				bob.awaitAck(now, "completed")
				bob.awaitAck(put, "completed")
				l.stop()
				if err := l.wait(); err != nil || alice.received() != 3 || len(times) != 4 {
					t.Errorf("%v; %d answers, %v", err, alice.received(), times)
				}
			})
		})
	}
}
