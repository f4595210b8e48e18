package http_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// fill sends n messages of about 1 MiB to itself.
func (m mecha) fill(n int) {
	m.r.t.Helper()
	payload := `,"payload":{"p":"` + strings.Repeat("x", 1000<<10) + `"}}`
	for range n {
		m.post(messages, strings.Replace(letter(m), `,"payload":{}}`, payload, 1)).want(201)
	}
}

// Bodies under way are bounded in memory, and one key's do not keep out another's.
func TestBodiesUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBodyMemory, s.api.MaxBody = 1<<20, 200<<10 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	large := func(m mecha) string { return letter(m) + strings.Repeat(" ", 100<<10) }
	slow := r.mustConnect(t, strings.Replace(alice.announce(100<<10), "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
	if _, err := slow.Read(make([]byte, 1)); err != nil { // the 100: the body is being waited for
		t.Fatal(err)
	}
	for range 3 {
		alice.post(messages, large(alice)).wantProblem(429, relay.RateLimited)
		alice.post(messages, large(alice), chunked).wantProblem(429, relay.RateLimited)
	}
	alice.mustSend(alice)
	bob.post(messages, large(bob)).want(201)
	bob.post(messages, large(bob), chunked).want(201)
	slow.Close()
	alice.eventually(large(alice))
	// Whatever becomes of a request, it gives its memory back.
	for range 20 {
		alice.do("GET", socketPath(alice), large(alice), handshake).wantProblem(400, relay.InvalidRequest)
		alice.post(messages, large(alice), signedBy("mk_wrong")).wantProblem(401, relay.InvalidSignature)
		alice.post(messages, "x"+large(alice)).wantProblem(400, relay.InvalidJSON)
		alice.post(messages, large(alice), idempotent(strings.Repeat("k", 129))).wantProblem(400, relay.InvalidIdempotencyKey)
	}
	alice.post(messages, large(alice)).want(201)
}

// eventually sends body until it is taken.
func (m mecha) eventually(body string) {
	m.r.t.Helper()
	for end := time.Now().Add(patience); m.post(messages, body).status != 201; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.r.t.Fatal("what was given back cannot be had")
		}
	}
}

// Large answers that nobody reads count as well. A refused request has changed nothing.
func TestAnswersUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBodyMemory = 64 << 20 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	alice.fill(6)
	bob.fill(6)
	page := historyPath(alice) + "?include=payload"
	passed := 0 // HEAD requests beside a refused GET
	for end := time.Now().Add(patience); ; {
		conn := r.mustConnect(t, "") // which does not read its 4 MiB
		conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		io.WriteString(conn, alice.ask(page))
		if a := alice.get(page); a.status == 429 {
			a.wantProblem(429, relay.RateLimited)
			if alice.do("HEAD", page, "").status == 429 { // else the last answer took more only while it was made
				break
			}
			if passed++; passed == 20 {
				t.Fatal("HEAD has no bound")
			}
		}
		if time.Now().After(end) {
			t.Fatal("there is no bound")
		}
	}
	alice.get(whoami).want(200)
	bob.get(historyPath(bob) + "?include=payload").want(200)
}
