package http_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
)

func ticketPath(m mecha) string { return "/api/v1/mecha/" + string(m.Mecha.Address) + "/ticket" }

func (m mecha) mustGetTicket() string {
	m.r.t.Helper()
	var got struct{ Ticket string }
	m.post(ticketPath(m), "").want(201).into(&got)
	return got.Ticket
}

// try opens a socket with a ticket, and without any header of ours. It gives the code of
// the refusal, "" if the socket is open.
func (m mecha) tryTicket(ticket string) string {
	m.r.t.Helper()
	conn, resp, err := websocket.Dial(context.Background(), m.r.url+socketPath(m)+"?sync_limit=0&ticket="+ticket, nil)
	if err != nil {
		if resp == nil {
			m.r.t.Fatal(err)
		}
		body := make([]byte, 4096) // the library keeps the beginning of it
		n, _ := resp.Body.Read(body)
		_, rest, _ := strings.Cut(string(body[:n]), `"code":"`)
		code, _, _ := strings.Cut(rest, `"`)
		return code
	}
	defer conn.CloseNow()
	s := &socket{t: m.r.t, conn: conn}
	s.write(`{}`) // it is alive
	if f := s.next(); f.Code != string(relay.InvalidFrame) {
		m.r.t.Errorf("got %+v", f)
	}
	return ""
}

// A ticket opens one socket of its Mecha, in its time, and stands for its key.
func TestTicketsOpenOneSocket(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RequireSignature, s.api.RequireRequestSignature = true, false })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	want := func(m mecha, ticket string, code relay.Code) {
		t.Helper()
		if got := m.tryTicket(ticket); got != string(code) {
			t.Errorf("got %q, want %q", got, code)
		}
	}
	first, second := alice.mustGetTicket(), alice.mustGetTicket()
	if first == second {
		t.Fatal("two tickets are the same")
	}
	want(alice, first, "")
	want(alice, first, relay.InvalidTicket)
	want(bob, second, relay.NotYourMecha)
	want(alice, second, relay.InvalidTicket) // it was used up
	want(alice, "tk_AAAAAAAAAAAAAAAAAAAAAAAAAA", relay.InvalidTicket)
	late, early := alice.mustGetTicket(), alice.mustGetTicket()
	r.clock.advance(30*time.Second - 1)
	want(alice, early, "")
	r.clock.advance(1)
	want(alice, late, relay.InvalidTicket)

	other := r.mustIssue("alice^demo")
	ticket, mine := other.mustGetTicket(), alice.mustGetTicket()
	r.mustRevoke(other)
	want(alice, ticket, relay.KeyRevoked)
	want(alice, mine, "")

	// An empty ticket counts as absent, and one elsewhere as an unknown parameter.
	alice.do("GET", socketPath(alice)+"?ticket=", "", handshake, with("X-Nonce")).wantProblem(401, relay.MissingHeader)
	alice.do("GET", whoami+"?ticket="+alice.mustGetTicket(), "", with("X-Mecha-Key")).wantProblem(401, relay.MissingHeader)
}

// A socket that was opened with a ticket ends with the key that got the ticket. Signed
// frames on it are signed with that key's secret.
func TestASocketOfATicketBelongsToItsKey(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RequireSignature = true })
	alice, spare := r.mustIssue("alice^demo"), r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.WithSecret = true })
	for _, key := range []mecha{alice, spare} {
		conn, _, err := websocket.Dial(context.Background(), r.url+socketPath(key)+"?sync_limit=0&ticket="+key.mustGetTicket(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		s, body := &socket{t: t, conn: conn}, `{"to":"bob^demo","payload":{}}`
		if f := s.send(body, key.signedFrame(body)...); f.Code != string(relay.RecipientNotFound) {
			t.Errorf("got %+v", f)
		}
		r.mustRevoke(key)
		_, _, err = conn.Read(context.Background())
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("got %v, want close 1008", err)
		}
	}
}

// A Mecha keeps 64 tickets, the newest; the expired ones of all leave nothing behind.
func TestTicketsHaveABound(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	bobs := bob.mustGetTicket()
	var all []string
	for range 66 {
		all = append(all, alice.mustGetTicket())
	}
	for i, code := range map[int]relay.Code{0: relay.InvalidTicket, 1: relay.InvalidTicket, 2: "", 65: ""} {
		if got := alice.tryTicket(all[i]); got != string(code) {
			t.Errorf("ticket %d: %q, want %q", i, got, code)
		}
	}
	if got := bob.tryTicket(bobs); got != "" {
		t.Errorf("another Mecha's: %q", got)
	}
}

// Guessing tickets counts as failing to authenticate.
func TestGuessingTicketsIsLimited(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.FailureLimit, s.api.FailureBurst = 1, 5 })
	alice := r.mustIssue("alice^demo")
	var codes []string
	for i := range 7 {
		codes = append(codes, alice.tryTicket(fmt.Sprint("tk_", i)))
	}
	want := slices.Repeat([]string{string(relay.InvalidTicket)}, 5)
	if want = append(want, string(relay.TooManyFailures), string(relay.TooManyFailures)); !slices.Equal(codes, want) {
		t.Errorf("got %q", codes)
	}
	if got := alice.tryTicket(alice.mustGetTicket()); got != "" {
		t.Errorf("a good one: %q", got)
	}
}

// lockedBuffer is a log that is written by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func TestNoLogHasATicket(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	r := mustServe(t, func(s *settings) {
		s.api.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s.hub.Logger, s.db.Logger = s.api.Logger, s.api.Logger
	})
	alice := r.mustIssue("alice^demo")
	ticket := alice.mustGetTicket()
	alice.tryTicket(ticket)
	alice.tryTicket(ticket)
	alice.get("/api/v1/mecha/" + ticket + "/inbox")
	r.stop()
	log.mu.Lock()
	defer log.mu.Unlock()
	if text := log.String(); strings.Contains(text, ticket) || !strings.Contains(text, `"status":101`) || !strings.Contains(text, "/ticket") {
		t.Errorf("the log is %s", text)
	}
}

// Pages of the origins that are allowed learn what they may do; others may do nothing.
func TestPreflights(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.AllowOrigins = []string{"https://app.example"} })
	alice := r.mustIssue("alice^demo")
	preflight := func(path, origin string, changes ...change) reply {
		t.Helper()
		return r.mustDo(mecha{r: r}.prepare("OPTIONS", path, "", append([]change{with("X-Mecha-Key"), with("X-Nonce"), with("X-Request-Timestamp"), unsigned,
			with("Origin", origin), with("Access-Control-Request-Method", "POST"), with("Access-Control-Request-Headers", "x-mecha-key")}, changes...)...))
	}
	for path, methods := range map[string]string{messages: "POST", whoami: "GET", ticketPath(alice): "POST", "/api/v1/mecha/bob^demo/profile": "GET, PUT", "/api/v1/mecha/alice%5Edemo/inbox": "GET"} {
		a := preflight(path, "https://app.example").want(200)
		for name, want := range map[string]string{
			"Access-Control-Allow-Origin": "https://app.example", "Vary": "Origin", "Access-Control-Allow-Methods": methods, "Access-Control-Max-Age": "600",
			"Access-Control-Allow-Headers":     "Content-Type, Idempotency-Key, If-None-Match, Prefer, X-Mecha-Key, X-Nonce, X-Request-Signature, X-Request-Timestamp, X-Signature, traceparent, tracestate",
			"Access-Control-Allow-Credentials": "",
		} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
	unseen := func(a reply) {
		t.Helper()
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s has %s", a.of, name)
			}
		}
	}
	for _, origin := range []string{"https://app.example.com", "http://app.example", "https://app.example:8443", "null", r.url} {
		a := preflight(messages, origin)
		a.wantProblem(403, relay.OriginNotAllowed)
		unseen(a)
		unseen(alice.get(whoami, with("Origin", origin)).want(200))
	}
	unseen(preflight(messages, "", with("Origin", "https://app.example", "https://app.example")))
	unseen(preflight("/livez", "https://app.example"))
	preflight("/api/v1/nothing", "https://app.example").wantProblem(404, relay.NotFound)
	preflight(messages, "https://app.example", with("Access-Control-Request-Method")).wantProblem(405, relay.MethodNotAllowed)
	for _, a := range []reply{alice.get(whoami, with("Origin", "HTTPS://app.example")).want(200), alice.post(messages, "{", with("Origin", "https://app.example"))} {
		if a.header.Get("Access-Control-Allow-Origin") == "" || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "X-Request-Id") {
			t.Errorf("%s: the page may not read %v", a.of, a.header)
		}
	}
}

// "*" allows every origin.
func TestEveryOriginMayBeAllowed(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.AllowOrigins = []string{"*"} })
	alice := r.mustIssue("alice^demo")
	for _, origin := range []string{"https://anywhere.example", "null"} {
		if a := alice.get(whoami, with("Origin", origin)).want(200); a.header.Get("Access-Control-Allow-Origin") != origin {
			t.Errorf("%s: %v", origin, a.header)
		}
	}
	if a := alice.get(whoami).want(200); a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without an origin: %v", a.header)
	}
}
