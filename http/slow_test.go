package http_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/scratch"
)

// announce is the beginning of a send, with n bytes to come; chunked if n is negative.
func (m mecha) announce(n int) string {
	length := fmt.Sprintf("Content-Length: %d\r\n", n)
	if n < 0 {
		length = "Transfer-Encoding: chunked\r\n"
	}
	return m.prepare("POST", messages, "").text(length)
}

// Many connections at once take their time: each is ended, a quick client is served
// meanwhile, and nothing is left of them.
func TestSlowAttacks(t *testing.T) {
	beside := !testing.Short() // the race detector takes the time that the relay gives a slow client
	if beside {
		t.Parallel()
	}
	n := scratch.Amount(t, 16, 250)
	unbounded := func(s *settings) { s.api.RateLimit, s.api.MaxBodyMemory = 0, 1<<30 }
	slowWrites := func(s *nethttp.Server) { s.WriteTimeout = min(s.WriteTimeout, 3*time.Second) } // of more than a minute; 0 is none
	for name, row := range map[string]struct {
		encrypted bool
		begin     func(m mecha) string
		drip      string // sent over and over
	}{
		"nothing is sent":         {false, func(mecha) string { return "" }, ""},
		"headers drip":            {false, func(mecha) string { return "GET /livez HTTP/1.1\r\nHost: x\r\n" }, "X: y\r\n"},
		"a request, then silence": {false, func(mecha) string { return "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" }, ""},
		"a stranger's body drips": {false, func(mecha) string {
			return "POST " + messages + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
		}, "x"},
		"a body drips":         {false, func(m mecha) string { return m.announce(100_000) }, "x"},
		"a chunked body drips": {false, func(m mecha) string { return m.announce(-1) }, "1\r\nx\r\n"},
		"answers are not read": {false, func(m mecha) string {
			return m.ask(historyPath(m)+"?include=payload") + m.ask(historyPath(m)+"?include=payload") + m.ask(historyPath(m)+"?include=payload")
		}, "x"},
		"no TLS handshake":           {true, func(mecha) string { return "" }, ""},
		"half a TLS handshake":       {true, func(mecha) string { return "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" }, ""},
		"a TLS handshake that drips": {true, func(mecha) string { return "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" }, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			if beside {
				t.Parallel()
			}
			label(t)
			r, n := mustServe(t, unbounded), n
			alice, mallory := r.mustIssue("alice^demo"), r.mustIssue("mallory^demo")
			alice.mustSend(alice)
			if name == "answers are not read" {
				mallory.fill(6)
			}
			r.client.CloseIdleConnections()
			// What comes before the attack has the time of r: a busy machine may need more than 2 s for it.
			r.settings.timeouts.Header, r.settings.timeouts.Body, r.settings.timeouts.Idle = 2*time.Second, 2*time.Second, 2*time.Second
			g := r.guarded(4*n, row.encrypted, slowWrites)
			alice, mallory = alice.at(g), mallory.at(g)
			before := goroutines(t)
			var attack sync.WaitGroup
			var served atomic.Bool
			if name == "answers are not read" {
				n = 20 // of 4 MiB each
			}
			for range n {
				conn := g.stranger("")
				attack.Go(func() {
					for {
						_, err := io.WriteString(conn, row.begin(mallory))
						for err == nil && row.drip != "" {
							time.Sleep(100 * time.Millisecond) // the attack itself
							_, err = io.WriteString(conn, row.drip)
						}
						if ended := (net.Error)(nil); errors.As(err, &ended) && ended.Timeout() {
							t.Error("the relay neither reads nor ends the connection")
						}
						wantEnded(t, conn)
						conn.Close()
						if served.Load() {
							return
						}
						if conn, err = net.Dial("tcp", g.address()); err != nil { // again, until somebody has been served
							t.Error(err)
							return
						}
						conn.SetDeadline(time.Now().Add(patience))
					}
				})
			}
			over := make(chan struct{})
			go func() { attack.Wait(); close(over) }()
			for i, attacked := 0, true; attacked; i++ {
				// With the header, its connection may fall idle before: the library sends it again. It sends
				// the GET again, too, with its nonce: that is refused if the first took more than the 3 s of slowWrites.
				began := time.Now()
				sent, err := g.try(alice.prepare("POST", messages, letter(alice), idempotent(fmt.Sprint(i))))
				who, also := g.try(alice.prepare("GET", whoami, ""))
				switch quick := time.Since(began) < time.Second; {
				case err == nil && also == nil && (quick || sent.status == 201 && who.status == 200):
					sent.want(201)
					who.want(200)
					served.Store(true)
				case quick || i > 1000: // else this machine is so busy that she is one of the slow herself
					t.Fatal(err, also, sent.status, who.status)
				}
				select {
				case <-over:
					attacked = false
				case <-time.After(20 * time.Millisecond): // she has no hurry
				}
			}
			g.client.CloseIdleConnections()
			for end := time.Now().Add(patience); goroutines(t) > before+8; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d goroutines, %d before", goroutines(t), before)
				}
			}
		})
	}
}

// A refusal comes soon, though the body that was announced, and may take 30 s,
// never does.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.timeouts.Body = 2 * patience })
	for path, status := range map[string]string{messages: "401", "/nothing": "404", "/livez": "405"} {
		conn := r.mustConnect(t, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") // its deadline is half of the body's
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+status) {
			t.Errorf("%s: %v, %q", path, err, answer)
		}
	}
}
