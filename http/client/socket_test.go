package client_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"
	"time"

	gobwas "github.com/gobwas/ws"

	"relay/db/relay"
	"relay/db/scratch/wire"
	"relay/http/client"
)

// socket is a Mecha's socket, and what the tests say of it.
type socket struct {
	*client.Socket
	t testing.TB
}

func (m *mecha) mustDial(query string) *socket {
	m.r.t.Helper()
	return mustDial(m.r.t, m.Client, m.name, query)
}

func mustDial(t testing.TB, c *client.Client, own relay.Address, query string) *socket {
	t.Helper()
	s, err := c.Dial(t.Context(), own, query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &socket{s, t}
}

type frame struct {
	Type      string
	MessageID string `json:"message_id"`
	Payload   []byte `json:"payload_base64"`
	Status    string
}

// expect receives a frame of a type.
func (s *socket) expect(kind string) (f frame) {
	s.t.Helper()
	if err := s.Receive(&f); err != nil || f.Type != kind {
		s.t.Fatalf("got %+v, %v, want a frame %s", f, err, kind)
	}
	return f
}

// ends waits for the error that ends the socket.
func (s *socket) ends() error {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Next(); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		s.t.Fatal("the socket does not end")
		return nil
	}
}

func (s *socket) wantClosed(code int) {
	s.t.Helper()
	err := s.ends()
	var closed *client.Closed
	if !errors.As(err, &closed) || closed.Code != code || closed.Reason == "" ||
		err.Error() != fmt.Sprintf("the relay closed the connection: %d %s", code, closed.Reason) {
		s.t.Errorf("it ends with %v, want the close code %d", err, code)
	}
}

func ackOf(id string) map[string]string {
	return map[string]string{"type": "ack", "message_id": id, "status": "completed", "client_ts": "2026-01-01T00:00:00Z"}
}

func TestMessagesAcksAndReceipts(t *testing.T) {
	r := mustServe(t)
	alice, bob := r.mustPair()
	before := alice.mustSend(bob, `{"n":1}`)
	asking, listening := alice.mustDial("sync_limit=0&events=receipts"), bob.mustDial("")
	if f := listening.expect("message"); f.MessageID != before.MessageID || string(f.Payload) != `{"n":1}` {
		t.Errorf("%+v", f)
	}
	large := `{"text":"` + strings.Repeat("für Bob ", 100_000) + `"}`
	now := alice.mustSend(bob, large)
	if f := listening.expect("message"); f.MessageID != now.MessageID || string(f.Payload) != large {
		t.Errorf("%s with %d bytes", f.MessageID, len(f.Payload))
	}
	if n := listening.Buffered(); n != 0 {
		t.Errorf("%d bytes are left though all was read", n)
	}
	if err := listening.Send(ackOf(now.MessageID)); err != nil {
		t.Fatal(err)
	}
	if f := asking.expect("receipt"); f.MessageID != now.MessageID || f.Status != "completed" {
		t.Errorf("%+v", f)
	}
}

func TestManyGoroutinesWriteWhileOneReads(t *testing.T) {
	r := mustServe(t)
	alice, bob := r.mustPair()
	s := bob.mustDial("events=acks")
	const n = 60
	var acks sync.WaitGroup
	defer acks.Wait()
	for range n {
		alice.mustSend(bob, `{}`)
	}
	messages, confirmed := 0, 0
	var texts [][]byte
	for confirmed < n {
		var f frame
		if err := s.Receive(&f); err != nil {
			t.Fatalf("after %d messages and %d acks: %v", messages, confirmed, err)
		}
		switch f.Type {
		case "message":
			messages++
			if id := f.MessageID; messages <= n/2 {
				acks.Go(func() {
					if err := errors.Join(s.Send(ackOf(id)), s.Ping()); err != nil {
						t.Error(err)
					}
				})
				continue
			}
			texts = append(texts, fmt.Appendf(nil, `{"type":"ack","message_id":%q,"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`, f.MessageID))
			if messages == n { // all of them in one write
				if err := s.SendText(texts...); err != nil {
					t.Fatal(err)
				}
			}
		case "ack_ok":
			confirmed++
		default:
			t.Fatalf("%+v", f)
		}
	}
}

func TestHandshakesThatAreRefused(t *testing.T) {
	r := mustServe(t)
	alice, bob := r.mustPair()
	for name, c := range map[string]struct {
		address relay.Address
		query   string
		status  int
		code    relay.Code
	}{
		"another's socket":  {bob.name, "", 403, relay.NotYourMecha},
		"an unknown cursor": {alice.name, "since_message_id=msg_0t3z1hj9e001xzqx8pz68qj0y4", 404, relay.CursorNotFound},
		"a wrong limit":     {alice.name, "sync_limit=-1", 400, relay.InvalidLimit},
		"no address":        {"bob", "", 400, relay.InvalidAddress},
	} {
		_, err := alice.Dial(t.Context(), c.address, c.query)
		var refused *client.Refusal
		if !errors.As(err, &refused) || refused.Status != c.status || refused.Code != c.code || refused.RequestID == "" || client.Temporary(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A server that is not a relay.
	for answer, says := range map[string]string{"": "200 OK", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=": "another WebSocket handshake"} {
		url := mustServeOther(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			if answer != "" {
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", "websocket")
				w.Header().Set("Sec-WebSocket-Accept", answer)
				w.WriteHeader(101)
			}
		})
		if _, err := alice.at(url).Dial(t.Context(), alice.name, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

func TestTheRelayCloses(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		revoked, stopped := alice.mustDial(""), bob.mustDial("")
		if err := r.db.Revoke(&relay.RevokeKey{At: time.Now(), ID: alice.key.ID}); err != nil {
			t.Fatal(err)
		}
		revoked.wantClosed(1008)
		r.stop()
		stopped.wantClosed(1001)
	})
}

func TestASocketThatIsCut(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		f := newFront(t, r)
		there := bob.at(f.url)
		s := mustDial(t, there, bob.name, "")
		first := alice.mustSend(bob, `{"n":1}`)
		s.expect("message")
		f.cut()
		if err := s.ends(); errors.As(err, new(*client.Closed)) || !client.Temporary(err) {
			t.Errorf("it ends with %v", err)
		}
		// The next socket continues where this one was cut.
		second := alice.mustSend(bob, `{"n":2}`)
		s = mustDial(t, there, bob.name, "since_message_id="+first.MessageID)
		if f := s.expect("message"); f.MessageID != second.MessageID {
			t.Errorf("%+v, want %s", f, second.MessageID)
		}
	})
}

// A network that goes silent, as when a cable is pulled, ends nothing. The relay pings every 25 s.
func TestASilentNetworkEndsTheSocket(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		_, bob := r.mustPair()
		f := newFront(t, r)
		s := mustDial(t, bob.at(f.url), bob.name, "")
		ended := make(chan error, 1)
		go func() { _, err := s.Next(); ended <- err }()
		time.Sleep(100 * time.Second)
		if len(ended) > 0 {
			t.Fatal("pings do not keep it")
		}
		began := time.Now()
		for _, c := range f.conns {
			c.(*wire.Conn).Cut()
		}
		if err := <-ended; !client.Temporary(err) || time.Since(began) > 90*time.Second {
			t.Errorf("it ends with %v after %v", err, time.Since(began))
		}
	})
}

func TestTheEndOfTheContextClosesTheSocket(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice := mustServe(t).mustIssue("alice^test")
		ctx, cancel := context.WithCancelCause(t.Context())
		s, err := alice.Dial(ctx, alice.name, "")
		if err != nil {
			t.Fatal(err)
		}
		why := errors.New("enough")
		cancel(why)
		if err := (&socket{s, t}).ends(); !errors.Is(err, why) {
			t.Errorf("it ends with %v", err)
		}
		if _, err := alice.Dial(ctx, alice.name, ""); !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
			t.Errorf("dialled all the same: %v", err)
		}
	})
}

func TestClose(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice := mustServe(t).mustIssue("alice^test")
		s := alice.mustDial("")
		closed := make(chan error, 2)
		for range 2 { // from other goroutines, while one reads
			go func() { closed <- s.Close() }()
		}
		if err := s.ends(); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
		for range 2 {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
		if s.Ping() == nil {
			t.Error("a closed socket can still be written to")
		}
	})
}

// A server that takes the connection and never answers holds nobody for longer
// than the context.
func TestDialDoesNotWaitForEver(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice := mustServe(t).mustIssue("alice^test")
		asked, done := make(chan struct{}), make(chan struct{})
		url := mustServeOther(t, func(nethttp.ResponseWriter, *nethttp.Request) { close(asked); <-done })
		defer close(done)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-asked; cancel() }()
		if _, err := alice.at(url).Dial(ctx, alice.name, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// Frames that a relay does not send. RFC 6455 allows fragments, a ping between
// them, and an empty message; it forbids the others.
func TestFramesOfOthers(t *testing.T) {
	alice := mustServe(t).mustIssue("alice^test")
	for name, c := range map[string]struct{ frames, receives, ends, pongs string }{
		"fragments":          {"\x01\x03{\"a" + "\x89\x02hi" + "\x00\x02\":" + "\x80\x031}\n", "{\"a\":1}\n", "EOF", "hi"},
		"nothing":            {"\x81\x00\x81\x02{}", "|{}", "EOF", ""},
		"pings":              {"\x89\x00\x8a\x02hi\x81\x02{}\x89\x01x", "{}", "EOF", "|x"},
		"closed":             {"\x81\x02{}\x88\x12\x03\xf5the relay failed", "{}", "1013 the relay failed", ""},
		"closed, no reason":  {"\x88\x00", "", "closed the connection", ""},
		"not UTF-8":          {"\x81\x02\xc3\x28", "", "not valid UTF-8", ""},
		"masked":             {"\x81\x82\x00\x00\x00\x00{}", "", "mask", ""},
		"a long ping":        {"\x89\x7e\x00\x80" + strings.Repeat("x", 128), "", "control frame", ""},
		"cut within a frame": {"\x81\x05{}", "", "unexpected EOF", ""},
		"cut in a fragment":  {"\x01\x02{}", "", "unexpected EOF", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pongs := make(chan string, 1)
			url := mustServeOther(t, func(w nethttp.ResponseWriter, r *nethttp.Request) { pongs <- upgrade(t, w, r, c.frames) })
			s := mustDial(t, alice.at(url), alice.name, "")
			var got []string
			var err error
			for err == nil {
				var text []byte
				if text, err = s.Next(); err == nil {
					got = append(got, string(text))
				}
			}
			if strings.Join(got, "|") != c.receives || !strings.Contains(err.Error(), c.ends) {
				t.Errorf("received %q, ended with %q; want %q, %q", got, err, c.receives, c.ends)
			}
			s.Close()
			if got := <-pongs; got != c.pongs {
				t.Errorf("the pongs %q, want %q", got, c.pongs)
			}
		})
	}
}

// upgrade answers a handshake, writes frames at once, and reads until the client
// closes. It returns what was in the client's pongs.
func upgrade(t testing.TB, w nethttp.ResponseWriter, r *nethttp.Request, frames string) string {
	key := r.Header.Get("Sec-WebSocket-Key")
	if raw, err := base64.StdEncoding.DecodeString(key); err != nil || len(raw) != 16 || r.Header.Get("Sec-WebSocket-Version") != "13" {
		t.Errorf("no handshake: %v", r.Header)
	}
	conn, _, err := w.(nethttp.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return ""
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n%s", accept(key), frames)
	conn.(interface{ CloseWrite() error }).CloseWrite()
	var pongs []string
	for {
		h, err := gobwas.ReadHeader(conn)
		payload := make([]byte, min(h.Length, 125))
		if _, e := io.ReadFull(conn, payload); err != nil || e != nil {
			return strings.Join(pongs, "|")
		}
		if !h.Masked {
			t.Errorf("the client has sent a frame without a mask: %+v", h)
		}
		if gobwas.Cipher(payload, h.Mask, 0); h.OpCode == gobwas.OpPong {
			pongs = append(pongs, string(payload))
		}
	}
}
