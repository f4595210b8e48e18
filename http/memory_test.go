package http_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/http"
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

// largeAnswers says of each endpoint whether its client chooses the size of the answer. Such an answer has its room
// before it is made, and before the request writes anything (room.go); the others have at most some KB.
var largeAnswers = map[string]bool{
	"GET /api/v1/whoami": false, "POST /api/v1/messages": false, "GET /api/v1/messages/{messageId}": false,
	"GET /api/v1/messages/{messageId}/payload": true, "GET /api/v1/messages/{messageId}/trace": true,
	"POST /api/v1/messages/{messageId}/ack": false, "POST /api/v1/messages/{messageId}/deliver": false,
	"GET /api/v1/mecha/{mechaId}/messages": true, "GET /api/v1/mecha/{mechaId}/inbox": false,
	"POST /api/v1/mecha/{mechaId}/claim": true, "GET /api/v1/ws/mecha/{mechaId}": false,
	"POST /api/v1/mecha/{mechaId}/ticket": false, "GET /api/v1/conversations/{conversationId}/messages": true,
	"GET /api/v1/mecha/{mechaId}/profile": true, "PUT /api/v1/mecha/{mechaId}/profile": true,
	"POST /api/v1/search": true, "GET /api/v1/search/{requestId}": true,
}

// A Mecha whose share is used up is refused what may be large, before anything is written. The rest is answered.
func TestAnswersHaveTheirRoomFirst(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBodyMemory, s.api.MaxBody = 1<<20, 100<<10 })
	alice := r.mustIssue("alice^demo")
	sent := alice.mustSend(alice)
	var search found
	alice.post(searches, `{"query":"alice"}`).want(202).into(&search)
	parameters := strings.NewReplacer("{messageId}", sent.MessageID, "{mechaId}", "alice^demo",
		"{conversationId}", sent.ConversationID, "{requestId}", search.RequestID)
	bodies := map[string]string{"POST /api/v1/messages": letter(alice), "POST /api/v1/search": `{"query":"alice"}`,
		"POST /api/v1/messages/{messageId}/ack": ackBody("processing"), "PUT /api/v1/mecha/{mechaId}/profile": `{"tags":["x"]}`}
	slow := r.mustConnect(t, strings.Replace(alice.announce(100<<10), "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
	if _, err := slow.Read(make([]byte, 1)); err != nil { // the 100: the body has its room, of a share of 128 KiB
		t.Fatal(err)
	}
	for _, row := range routes() {
		name := row.Method + " " + row.Path
		large, known := largeAnswers[name]
		if row.Who == http.Anyone {
			continue
		}
		if !known {
			t.Errorf("%s: say in largeAnswers whether its client chooses the size of the answer", name)
			continue
		}
		a := alice.do(row.Method, parameters.Replace(row.Path), bodies[name], handshake)
		if large {
			a.wantProblem(429, relay.RateLimited)
		} else if a.status >= 300 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	alice.post(messages, letter(alice), with("Prefer", "wait=0")).want(201)
	slow.Close()
	alice.eventually(letter(alice) + strings.Repeat(" ", 90<<10))
	if got := alice.claim(`{"limit":1}`); len(got) != 1 || got[0].Attempt != 1 || got[0].MessageID != sent.MessageID {
		t.Errorf("the claim that was refused has leased: %+v", got)
	}
	if a := alice.get(profilePath(alice.Mecha.Address)).want(200); strings.Contains(string(a.body), `"x"`) {
		t.Errorf("the profile that was refused is written: %s", a.body)
	}
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
	passed := 0 // HEAD requests next to a refused GET
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
