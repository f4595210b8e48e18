package http_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"database/sql"

	"relay/db/relay"
	"relay/http"
)

// PROTOCOL §6, and §§2–8 for the codes that stand there.
var statuses = map[relay.Code]int{
	"invalid_request": 400, "invalid_json": 400, "invalid_address": 400, "invalid_limit": 400, "invalid_time": 400,
	"invalid_idempotency_key": 400, "invalid_frame": 400,
	"missing_header": 401, "malformed_header": 401, "malformed_key": 401, "unknown_key": 401, "key_revoked": 401, "key_expired": 401,
	"timestamp_out_of_range": 401, "signature_required": 401, "invalid_signature": 401, "nonce_reused": 401, "invalid_ticket": 401,
	"sender_mismatch": 403, "not_your_mecha": 403, "not_a_party": 403, "recipient_only": 403, "not_a_participant": 403, "origin_not_allowed": 403, "not_your_search": 403, "broadcast_not_allowed": 403, "not_accepted": 403,
	"not_found": 404, "message_not_found": 404, "recipient_not_found": 404, "conversation_not_found": 404, "cursor_not_found": 404, "mecha_not_found": 404, "search_not_found": 404,
	"method_not_allowed": 405, "request_timeout": 408, "already_acknowledged": 409, "too_many_acks": 409, "message_expired": 409, "search_expired": 410,
	"payload_too_large": 413, "unsupported_encoding": 415, "idempotency_key_reused": 422, "too_many_recipients": 422, "upgrade_required": 426,
	"rate_limited": 429, "too_many_failures": 429, "mailbox_full": 429, "conversation_full": 429, "too_many_sockets": 429,
	"internal": 500, "store_failed": 500, "overloaded": 503, "shutting_down": 503, "database_locked": 503, "not_current": 503, "disk_full": 507,
}

func TestEveryCodeHasItsStatus(t *testing.T) {
	listed := map[relay.Code]bool{}
	for _, c := range relay.Codes {
		want, ok := statuses[c.Code]
		if !ok || http.Status(c.Code) != want {
			t.Errorf("%s has the status %d, want %d", c.Code, http.Status(c.Code), want)
		}
		if listed[c.Code] || c.Meaning == "" {
			t.Errorf("%s is listed twice, or without its meaning", c.Code)
		}
		listed[c.Code] = true
	}
	for _, c := range codeConstants(t) {
		if !listed[c] {
			t.Errorf("%s is not in relay.Codes", c)
		}
	}
}

// codeConstants reads the codes that db declares from its source.
func codeConstants(t *testing.T) (all []relay.Code) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../db/relay/error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, relay.Code(text))
		}
		return true
	})
	if len(all) < 40 {
		t.Fatalf("found only %d codes", len(all))
	}
	return all
}

func TestEveryResponseHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	seen := map[string]bool{}
	for _, a := range []reply{
		alice.get(whoami), alice.post(messages, letter(alice)), alice.post(messages, "{"), alice.get("/nothing"), alice.do("PUT", messages, ""),
		alice.get(inboxPath(alice), with("If-None-Match", "*")), alice.do("HEAD", whoami, ""), r.anyone("GET", whoami), r.anyone("GET", "/livez"),
		r.anyone("HEAD", "/readyz"), r.anyone("GET", "/version"), r.anyone("GET", "/docs"), r.anyone("OPTIONS", whoami), alice.get(socketPath(alice)),
		r.dial(t, alice, "OPTIONS", "*", ""),
	} {
		id := a.header.Get("X-Request-Id")
		if id == "" || seen[id] || len(a.header.Values("X-Request-Id")) != 1 {
			t.Errorf("%s: X-Request-Id %q", a.of, id)
		}
		seen[id] = true
		if a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", a.of, a.header)
		}
	}
	if a := alice.get(whoami, with("X-Request-Id", "mine")); a.header.Get("X-Request-Id") == "mine" {
		t.Error("the client's word became the request's id")
	}
}

func TestAroundTheAPI(t *testing.T) {
	r := mustServe(t, func(s *settings) { s.api.Version = http.Version{Version: "1.2.3", Commit: "abc", Go: "go1"} })
	r.anyone("GET", "/livez").want(200).wantField("status", `"ok"`)
	r.anyone("GET", "/readyz").want(200).wantField("status", `"ready"`)
	r.anyone("GET", "/version").want(200).wantField("version", `"1.2.3"`).wantField("commit", `"abc"`).wantField("go", `"go1"`)
	docs := r.anyone("GET", "/docs")
	if docs.status != 200 || docs.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("docs: %d %v", docs.status, docs.header)
	}
	p := r.anyone("GET", whoami).wantProblem(401, relay.MissingHeader)
	if p.Type != "/docs#missing_header" || p.Docs != p.Type {
		t.Errorf("%+v", p)
	}
	for _, c := range relay.Codes { // where the errors link to
		if !strings.Contains(string(docs.body), ` id="`+string(c.Code)+`">`) {
			t.Errorf("/docs does not explain %s", c.Code)
		}
	}
}

func TestTitlesAndSentences(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	for _, row := range []struct {
		a             reply
		title, detail string
	}{
		{alice.post(messages, `{"To":"bob^demo","payload":{}}`), "Invalid JSON", `the name "To" must be written "to"`},
		{alice.get(inboxPath(bob)), "Not your Mecha", "the path names bob^demo, but the key belongs to alice^demo"},
		{alice.get(historyPath(alice) + "?peer=%3Cb%3E"), "Invalid address", "<b>"},
		{alice.get(profilePath("nobody^demo")), "Mecha not found", "nobody^demo"},
	} {
		p := row.a.wantProblem(row.a.status, relay.Code(strings.ToLower(strings.ReplaceAll(row.title, " ", "_"))))
		if p.Title != row.title || !strings.Contains(p.Detail, row.detail) {
			t.Errorf("%s: %s: %s", row.a.of, p.Title, p.Detail)
		}
	}
}

// lines is a log that a test can read.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

// A failure that the relay cannot explain to a client goes to its log, once.
func TestAnUnknownFailure(t *testing.T) {
	var log lines
	r := mustServe(t, func(s *settings) { s.api.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	alice := r.mustIssue("alice^demo")
	id := alice.mustSend(alice).MessageID
	file, err := sql.Open("sqlite", "file:"+r.settings.db.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, table := range []string{"payload", "receipt"} {
		if _, err := file.Exec("ALTER TABLE " + table + " RENAME TO lost" + table); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []reply{alice.get(messagePath(id) + "/payload"), alice.post(messages, letter(alice)), alice.get(historyPath(alice))} {
		p := a.wantProblem(500, relay.Internal)
		if text := string(a.body); strings.Contains(text, "table") || strings.Contains(text, "SQL") {
			t.Errorf("%s tells %s", a.of, text)
		}
		log.mu.Lock()
		told := slices.DeleteFunc(slices.Clone(log.all), func(s string) bool { return !strings.Contains(s, p.RequestID+" ") })
		log.mu.Unlock()
		if len(told) != 1 || !strings.Contains(told[0], "no such table") {
			t.Errorf("%s: the log has %q", a.of, told)
		}
	}
}
