package http_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay/db/scratch"
	"relay/db/scratch/wire"
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
	n := scratch.Amount(t, 8, 250)
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
			wire.Bubble(t, func(t *testing.T) {
				label(t)
				r, n := mustServe(t, attackable), n
				alice, mallory := r.mustIssue("alice^demo"), r.mustIssue("mallory^demo")
				if name == "answers are not read" {
					mallory.fill(6)
					n = scratch.Amount(t, 4, 20) // of 4 MiB each
				}
				g := r.serveOn(wire.Listen(t), row.encrypted)
				alice, mallory = alice.at(g), mallory.at(g)
				before := goroutines(t)
				var attack sync.WaitGroup
				for range n {
					conn := g.stranger("")
					conn.SetDeadline(time.Time{})
					attack.Go(func() {
						_, err := io.WriteString(conn, row.begin(mallory))
						for err == nil && row.drip != "" {
							time.Sleep(time.Second)
							_, err = io.WriteString(conn, row.drip)
						}
						wantEnded(t, conn)
						conn.Close()
					})
				}
				began, over := time.Now(), make(chan struct{})
				go func() { attack.Wait(); close(over) }()
				for i, attacked := 0, true; attacked; i++ {
					asked := time.Now()
					alice.post(messages, letter(alice)).want(201)
					alice.get(whoami).want(200)
					if d := time.Since(asked); d > 0 {
						t.Errorf("she waited %v", d)
					}
					select {
					case <-over:
						attacked = false
					case <-time.After(5 * time.Second):
					}
				}
				if d := time.Since(began); d > 3*time.Minute { // a body, a wait and the answer are given two
					t.Errorf("the last of them was ended after %v", d)
				}
				g.client.CloseIdleConnections()
				synctest.Wait()
				if now := goroutines(t); now > before {
					t.Errorf("%d goroutines, %d before", now, before)
				}
			})
		})
	}
}

// attackable are the usual times, and no rates.
func attackable(s *settings) {
	s.timeouts.Header, s.timeouts.Body, s.timeouts.Idle = 10*time.Second, 30*time.Second, 2*time.Minute
	s.api.RateLimit, s.api.MaxBodyMemory = 0, 1<<30
}

// A refusal comes soon, though the body that was announced, and may take 30 s,
// never does.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(s *settings) { s.timeouts.Body = 2 * patience })
		for path, status := range map[string]string{messages: "401", "/nothing": "404", "/livez": "405"} {
			conn := r.mustConnect(t, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") // its deadline is half of the body's
			answer, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+status) {
				t.Errorf("%s: %v, %q", path, err, answer)
			}
		}
	})
}
