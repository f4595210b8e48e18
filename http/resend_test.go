package http_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
)

// cutter stands between client and server and, once told to, cuts the
// connection of a send, so that its answer is lost.
type cutter struct {
	net.Listener
	to    string
	cut   atomic.Int32 // what to do with the next send
	sends atomic.Int32 // that went by
	wg    sync.WaitGroup
}

const (
	cutNothing int32 = iota
	cutBefore        // when the request has gone on to the server: no answer is passed on
	cutAfter         // when the answer comes
)

func mustCut(t *testing.T, r *testRelay) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l, to: strings.TrimPrefix(r.url, "http://")}
	c.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", c.to)
			if err != nil {
				client.Close()
				continue
			}
			c.wg.Go(func() { c.forward(client, server) })
		}
	})
	r.url = "http://" + l.Addr().String()
	t.Cleanup(func() {
		l.Close()
		r.client.CloseIdleConnections()
		c.wg.Wait()
	})
	return c
}

func (c *cutter) forward(client, server net.Conn) {
	var lost atomic.Bool // the answer to the request under way
	c.wg.Go(func() {
		defer client.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err != nil || lost.Load() {
				server.Close()
				return
			}
			client.Write(b[:n])
		}
	})
	defer server.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		what := cutNothing
		if bytes.HasPrefix(b[:n], []byte("POST "+messages+" ")) {
			c.sends.Add(1)
			what = c.cut.Swap(cutNothing)
		}
		lost.Store(what != cutNothing)
		server.Write(b[:n])
		if what == cutBefore {
			client.Close()
			return
		}
	}
}

// waitsLong lets a write of the store wait for mustHoldWrites for longer than its 10 s.
func waitsLong(s *settings) { s.db.LockWait = patience }

// mustHoldWrites keeps the store from committing until release is called.
func (r *testRelay) mustHoldWrites() (release func()) {
	r.t.Helper()
	d, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)", r.settings.db.Path, patience.Milliseconds()))
	if err != nil {
		r.t.Fatal(err)
	}
	d.SetMaxOpenConns(1)
	if _, err := d.Exec("BEGIN IMMEDIATE"); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		if _, err := d.Exec("ROLLBACK"); err != nil {
			r.t.Error(err)
		}
		d.Close()
	}
}

// mustReuse asks until the next request gets a connection that was used before. Go's http.Transport
// closes the connection instead if its own goroutine has not told within 50 ms that all was written.
func (m mecha) mustReuse() {
	m.r.t.Helper()
	eventually(m.r.t, "the connection is kept", func() (kept bool) {
		q, err := m.prepare("GET", whoami, "").request(m.r.url)
		if err != nil {
			m.r.t.Fatal(err)
		}
		trace := &httptrace.ClientTrace{PutIdleConn: func(err error) { kept = err == nil }} // before the end of the body is read
		a, err := m.r.client.Do(q.WithContext(httptrace.WithClientTrace(context.Background(), trace)))
		if err != nil {
			m.r.t.Fatal(err)
		}
		defer a.Body.Close()
		if body, err := io.ReadAll(a.Body); err != nil || a.StatusCode != 200 {
			m.r.t.Fatalf("%d %s %v", a.StatusCode, body, err)
		}
		return kept
	})
}

// Go's http.Transport sends a request with an Idempotency-Key again when a
// connection that it had used before breaks: same nonce, same timestamp. The
// client must see a 201, and there must be one message.
func TestATransportThatResends(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]int32{"before the answer": cutBefore, "with the answer": cutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := mustServe(t, waitsLong)
			alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
			proxy := mustCut(t, r)
			n := scratch.Amount(t, 12, 40)
			for i := range n {
				alice.mustReuse()
				proxy.cut.Store(when)
				c := alice.prepare("POST", messages, letter(bob), idempotent(fmt.Sprint("k", i)))
				release := func() {}
				if when == cutBefore { // the first send is still under way when the second one comes
					release = r.mustHoldWrites()
				}
				var a reply
				var err error
				ended := make(chan struct{})
				go func() { defer close(ended); a, err = r.try(c) }()
				eventually(t, "it is sent twice", func() bool { return proxy.sends.Load() == int32(2*i+2) })
				release()
				if <-ended; err != nil {
					t.Fatal(err)
				}
				a.want(201)
				if when == cutAfter && a.header.Get("Idempotent-Replayed") != "true" {
					t.Error("the second answer is a replay")
				}
			}
			if got := proxy.sends.Load(); got != int32(2*n) {
				t.Fatalf("%d sends went by, want %d", got, 2*n)
			}
			r.wantMessages(n)
		})
	}
}

// Without the header nothing is sent again, and the outcome is unknown to the client.
func TestATransportThatDoesNot(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	proxy := mustCut(t, r)
	alice.get(whoami).want(200)
	proxy.cut.Store(cutAfter)
	c := alice.prepare("POST", messages, letter(alice))
	if a, err := r.try(c); err == nil {
		t.Fatalf("an answer came: %s", a.body)
	}
	r.wantMessages(1)
	r.mustDo(c).wantProblem(401, relay.NonceReused)
}

// Once its nonce is used up, a send goes through whether or not its client is
// still there: else the same request, sent again, would be refused for the
// nonce, with nothing stored. The readers are kept busy, so that it has to wait.
func TestASendWhoseClientHasGone(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	r.mustFill(alice, bob, 100)
	proxy := mustCut(t, r)
	defer r.keepReadersBusy(bob)()
	for i := range 4 {
		alice.mustReuse()
		proxy.cut.Store(cutBefore)
		r.mustDo(alice.prepare("POST", messages, letter(bob), idempotent(fmt.Sprint("k", i)))).want(201)
	}
}
