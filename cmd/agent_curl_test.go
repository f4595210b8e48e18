package cmd_test

import (
	"crypto/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The whole life of a message with curl only: three headers, no signature.
func TestTheLifeOfAMessageByPlainCurl(t *testing.T) {
	tool(t, "curl")
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "alice^curl", "bob^curl")
	alice, bob := keys[0], keys[1]
	s := startServer(t, db)
	curl := func(a agent, path string, args ...string) []byte {
		t.Helper()
		args = append([]string{"-sS", "--fail-with-body", s.url + path, "-H", "X-Mecha-Key: " + a.Key, "-H", "X-Nonce: " + rand.Text(),
			"-H", "X-Request-Timestamp: " + time.Now().Format(time.RFC3339)}, args...)
		return []byte(finish(t, exec.Command("curl", args...), nil, "").wantCode(t, 0).out)
	}
	// Number spelling, key order and white space stay as the sender wrote them.
	payload := `{ "b": 1.50,  "a": "für Bob" }`
	m := parse[record](t, curl(alice, "/api/v1/messages", "-d", `{"to":"bob^curl","from":"alice^curl","message_type":"note","payload":`+payload+`}`))
	message := "/api/v1/messages/" + m.MessageID

	inbox := parse[struct{ Pending int }](t, curl(bob, "/api/v1/mecha/bob%5Ecurl/inbox"))
	h := parse[struct{ Messages []record }](t, curl(bob, "/api/v1/mecha/bob^curl/messages?state=pending", "--globoff"))
	if inbox.Pending != 1 || len(h.Messages) != 1 || h.Messages[0].MessageID != m.MessageID || h.Messages[0].State != "queued" || h.Messages[0].Signed {
		t.Fatalf("inbox %+v, history %+v", inbox, h)
	}
	if got := string(curl(bob, message+"/payload")); got != payload {
		t.Errorf("payload %s, want %s", got, payload)
	}
	state := func(a agent) string { return parse[record](t, curl(a, message)).State }
	if got := state(alice); got != "queued" {
		t.Errorf("read, it is %s", got)
	}
	curl(bob, message+"/deliver", "-X", "POST")
	if got := state(alice); got != "delivered" {
		t.Errorf("after deliver it is %s", got)
	}
	curl(bob, message+"/ack", "-d", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`)
	if got := parse[record](t, curl(alice, message)); got.State != "acknowledged" || got.Ack == nil || got.Ack.Status != "completed" {
		t.Errorf("after the ack it is %+v", got)
	}
	c := parse[struct{ Messages []record }](t, curl(alice, "/api/v1/conversations/"+m.ConversationID+"/messages"))
	if len(c.Messages) != 1 || c.Messages[0].MessageID != m.MessageID {
		t.Errorf("conversation %+v", c)
	}
}

// talk is what the client commands need: a server, and an environment for alice.
func talk(t *testing.T) (s *server, alice, bob agent, env []string) {
	db := tempDB(t)
	keys := issue(t, db, "alice^curl", "bob^curl")
	s = startServer(t, db, "--require-message-signature")
	return s, keys[0], keys[1], []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + keys[0].Key}
}

const hello = `{"to":"bob^curl","payload":{"text":"hello"}}`

func TestRelaySignFeedsCurl(t *testing.T) {
	tool(t, "bash", "curl")
	_, _, _, env := talk(t)
	script := `body='` + hello + `'; "$0" sign "$body" | curl -sS -H @- -d "$body" "$RELAY_URL/api/v1/messages"`
	r := finish(t, exec.Command("bash", "-c", script, binary), env, "").wantCode(t, 0)
	if m := parse[record](t, []byte(r.out)); m.MessageID == "" {
		t.Errorf("%s", r.out)
	}
}

// With --request, the headers are good for that request alone.
func TestRelaySignSignsTheRequest(t *testing.T) {
	s, _, _, env := talk(t)
	r := run(t, []string{"sign", hello, "--json", "--request", "post /api/v1/messages"}, env, "").wantCode(t, 0)
	h := http.Header{}
	for k, v := range parse[map[string]string](t, []byte(r.out)) {
		h.Set(k, v)
	}
	if len(h) != 5 {
		t.Errorf("%v", h)
	}
	for _, c := range []struct {
		path   string
		status int
	}{{"/api/v1/search", 401}, {"/api/v1/messages?x", 401}, {"/api/v1/messages", 201}} {
		if ans, err := (request{"POST", c.path, hello, h}).to(s.url); err != nil || ans.status != c.status {
			t.Errorf("%s: %v, %d %s; want %d", c.path, err, ans.status, ans.body, c.status)
		}
	}
	run(t, []string{"sign", "--request", "whoami"}, env, "").wantCode(t, 2, "--request must be a method and a path")
}

// The client commands do what a relay needs that requires request signatures.
func TestCommandsSignTheRequest(t *testing.T) {
	db := tempDB(t)
	keys := issue(t, db, "alice^curl", "bob^curl")
	s := startServer(t, db, "--require-request-signature")
	s.ask(keys[0], "GET", "/api/v1/whoami", "").wantProblem(t, 401, "signature_required")
	env := []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + keys[0].Key}
	run(t, []string{"curl", "GET", "/api/v1/mecha/alice^curl/messages?limit=3&x=a|b"}, env, "").wantCode(t, 0)
	run(t, []string{"send", "alice^curl", `{"text":"hello"}`}, env, "").wantCode(t, 0)
	l := launchHere(t, []string{"listen", "--state", filepath.Join(t.TempDir(), "state")}, env)
	l.await(l.stdout, "hello")
}

func TestRelaySignPrintsTheHeaders(t *testing.T) {
	s, alice, _, env := talk(t)
	for name, args := range map[string][]string{"argument": {"sign", hello}, "stdin": {"sign", "-"}} {
		r := run(t, append(args, "--json"), env, hello).wantCode(t, 0)
		h := http.Header{}
		for k, v := range parse[map[string]string](t, []byte(r.out)) {
			h.Set(k, v)
		}
		if len(h) != 4 || h.Get("X-Mecha-Key") != alice.Key {
			t.Errorf("%s: %v", name, h)
		}
		ans, err := request{"POST", "/api/v1/messages", hello, h}.to(s.url)
		if err != nil || ans.status != http.StatusCreated {
			t.Errorf("%s: %v, %s", name, err, ans.body)
		}
	}
}

func TestRelayCurl(t *testing.T) {
	t.Parallel()
	s, alice, bob, env := talk(t)
	curl := func(stdin string, args ...string) result {
		return run(t, append([]string{"curl"}, args...), env, stdin)
	}

	r := curl("", "GET", "/api/v1/whoami").wantCode(t, 0)
	if !strings.Contains(r.out, `"mecha_id":"alice^curl"`) || !strings.HasSuffix(r.out, "\n") || r.err != "" {
		t.Errorf("%q, %q", r.out, r.err)
	}
	// A body as an argument, from stdin, from a file; methods in any case.
	in := filepath.Join(t.TempDir(), "message.json")
	if err := os.WriteFile(in, []byte(hello+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	curl("", "POST", "/api/v1/messages", hello).wantCode(t, 0)
	curl(hello, "post", "/api/v1/messages", "-").wantCode(t, 0)
	curl("", "POST", "/api/v1/messages", "@"+in).wantCode(t, 0)
	if h := s.history(bob, ""); len(h) != 3 {
		t.Errorf("bob has %d messages, want 3", len(h))
	}
	curl("", "POST", "/api/v1/messages", "@"+in+".not").wantCode(t, 1, "message.json.not")

	// -H and -i.
	first := curl("", "POST", "/api/v1/messages", hello, "-H", "Idempotency-Key: 17", "-i").wantCode(t, 0)
	again := curl("", "POST", "/api/v1/messages", hello, "-H", "idempotency-key:17", "-i").wantCode(t, 0)
	_, body, _ := strings.Cut(first.out, "\n\n")
	if !strings.HasPrefix(first.out, "HTTP/1.1 201 Created\n") || !strings.Contains(again.out, "Idempotent-Replayed: true") || !strings.HasSuffix(again.out, body) {
		t.Errorf("first:\n%s\nagain:\n%s", first.out, again.out)
	}

	// A status other than 2xx is exit code 1, with the problem on stdout and the status on stderr; 304 is not a failure.
	r = curl("", "GET", "/api/v1/messages/msg_none").wantCode(t, 1, "404")
	if !strings.Contains(r.out, `"code":"message_not_found"`) {
		t.Errorf("%s", r.out)
	}
	r = curl("", "GET", "/api/v1/mecha/alice%5Ecurl/inbox", "-i").wantCode(t, 0)
	etag := r.out[strings.Index(r.out, "Etag: ")+len("Etag: "):]
	etag, _, _ = strings.Cut(etag, "\n")
	r = curl("", "GET", "/api/v1/mecha/alice%5Ecurl/inbox", "-H", "If-None-Match: "+strings.TrimSpace(etag), "-i").wantCode(t, 0)
	if !strings.Contains(r.out, "304 Not Modified") {
		t.Errorf("%s", r.out)
	}

	// Wrong usage.
	curl("", "GET").wantCode(t, 2, "Try: relay curl --help")
	curl("", "GET", "api/v1/whoami").wantCode(t, 2, "must begin with /")
	curl("", "GET", "/api/v1/%zz").wantCode(t, 2, "not a valid method or path", "Try: relay curl --help")
	curl("", "GET", "/api/v1/whoami", "-H", "no colon").wantCode(t, 2, "not a valid header")
	run(t, []string{"curl", "GET", "/api/v1/whoami"}, []string{"RELAY_URL=" + s.url}, "").wantCode(t, 2, "RELAY_KEY")
	curl("", "GET", "/api/v1/whoami", "--url", strings.TrimPrefix(s.url, "http://")).wantCode(t, 2, "must begin with http://")

	// No relay there; a key that was never issued; a key from a file.
	run(t, []string{"curl", "GET", "/"}, []string{"RELAY_URL=http://127.0.0.1:1", "RELAY_KEY=" + alice.Key}, "").wantCode(t, 1, "is the relay running at http://127.0.0.1:1?")
	run(t, []string{"curl", "GET", "/api/v1/whoami"}, []string{"RELAY_URL=" + s.url, "RELAY_KEY=mk_x"}, "").wantCode(t, 1, "401")
	keyFile := filepath.Join(t.TempDir(), "bob.key")
	if err := os.WriteFile(keyFile, []byte(bob.Key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = curl("", "GET", "/api/v1/whoami", "--key-file", keyFile).wantCode(t, 0)
	if !strings.Contains(r.out, "bob^curl") {
		t.Errorf("%s", r.out)
	}
	curl("", "GET", "/api/v1/whoami", "--url", s.url+"/").wantCode(t, 0)
}

// A payload, a body and a profile may be an argument, a file or stdin, in every
// command that takes one. Text is never taken for the name of a file: it may be
// the words of others.
func TestWhereAPayloadComesFrom(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	file := text(t, "p.json", `{"text":"from a file"}`)
	for _, at := range []string{"@" + file, "-"} {
		for _, args := range []string{"send bob^talk", "curl PUT /api/v1/mecha/alice^talk/profile", "mecha profile set alice^talk --db " + p.db, "sign"} {
			env := p.asAlice
			if strings.HasPrefix(args, "mecha") {
				env = nil
			}
			run(t, append(strings.Fields(args), at), env, `{"text":"from stdin"}`).wantCode(t, 0)
		}
	}
	does(t, p.asAlice, "send", "bob^talk", file).wantCode(t, 2, "is not valid JSON", "to send the file of that name, write @"+file)
	got := p.history(p.alice, "direction=out")
	if len(got) != 2 {
		t.Fatalf("%d messages", len(got))
	}
	detail := func(id, want string, flags ...string) {
		t.Helper()
		run(t, append([]string{"ack", id, "processing"}, flags...), p.asBob, "from stdin\n").wantCode(t, 0)
		if m := p.record(p.bob, id); m.Ack == nil || m.Ack.Detail != want {
			t.Errorf("%v: %+v, want %q", flags, m.Ack, want)
		}
	}
	detail(got[0].MessageID, "@"+file, "--detail", "@"+file)
	detail(got[0].MessageID, `{"text":"from a file"}`, "--detail-file", file)
	detail(got[1].MessageID, "from stdin", "--detail-file", "-")
	does(t, p.asBob, "ack", got[1].MessageID, "--detail", "x", "--detail-file", file).wantCode(t, 2, "cannot be combined")
}

// Two workers on one address do as the page on sockets says.
func TestTwoWorkersOnOneAddressBothRun(t *testing.T) {
	tool(t, "sh")
	t.Parallel()
	p := newPair(t)
	ran := filepath.Join(t.TempDir(), "ran")
	for range 2 {
		p.listen("--exec", `echo once >> '`+ran+`'`)
	}
	p.send(p.alice, "bob^talk", `{}`)
	eventually(t, patience, "both have run", func() bool {
		text, _ := os.ReadFile(ran)
		return string(text) == "once\nonce\n"
	})
}

func TestCurlSignsWithTheSigningSecret(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^keys", "--signing-secret")[0]
	env := []string{"RELAY_URL=" + startServer(t, db).url, "RELAY_KEY=" + a.Key}
	run(t, []string{"curl", "GET", "/api/v1/whoami"}, env, "").wantCode(t, 1)
	run(t, []string{"curl", "GET", "/api/v1/whoami"}, append(env, "RELAY_SIGNING_SECRET="+*a.Secret), "").wantCode(t, 0)
}
