package conformance_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/cmd/child"
	"relay/cmd/conformance"
	"relay/db/relay"
	"relay/db/scratch"
)

// mustServe starts a relay, and makes keys for Mechas, which are named in their order.
func mustServe(t *testing.T, names []string, flags ...string) (host string, all []conformance.Credentials) {
	t.Helper()
	db := filepath.Join(t.TempDir(), "relay.db")
	args := slices.Concat([]string{"serve", "--addr=127.0.0.1:0", "--log-format=json", "--db=" + db}, flags)
	r, err := child.Start(t.Context(), self, args, child.Environ())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	out, err := exec.CommandContext(t.Context(), self, slices.Concat([]string{"key", "create", "--json", "--db", db}, names)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(out) {
		var k struct {
			MechaID relay.Address `json:"mecha_id"`
			Key     string
		}
		if err := json.Unmarshal(line, &k); err != nil {
			t.Fatal(err)
		}
		all = append(all, conformance.Credentials{Address: k.MechaID, Key: k.Key})
	}
	return strings.TrimPrefix(r.URL, "http://"), all
}

// mustJudge judges a server that is right, so that a short silence is enough; hearing is how long it
// may take for a frame.
func mustJudge(t *testing.T, hearing time.Duration, base string, first, second conformance.Credentials, only ...string) []conformance.Result {
	t.Helper()
	silence := 300 * time.Millisecond
	if scratch.Long(t) {
		silence = 0 // the usual one
	}
	return mustJudgeSilence(t, hearing, silence, base, first, second, only...)
}

// mustJudgeSilence judges a server. After the silence, a check takes it that no frame comes.
func mustJudgeSilence(t *testing.T, hearing, silence time.Duration, base string, first, second conformance.Credentials, only ...string) []conformance.Result {
	t.Helper()
	results, err := conformance.CheckServer(t.Context(), conformance.ServerConfig{URL: base, First: first, Second: second, Only: only, Hearing: hearing, Silence: silence, Progress: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// The relay passes every check, whether it wants signatures of messages or not. Checks that do not
// concern signatures run with --require-message-signature in the long form alone.
func TestTheRelayPassesEveryCheck(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--require-message-signature"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			host, keys := mustServe(t, []string{"a^ours", "b^ours"}, flags...)
			for i := range keys {
				keys[i].Address = "" // it can be asked
			}
			want := len(conformance.Checks())
			var only []string
			if flags != nil && !scratch.Long(t) {
				only = []string{"send", "push", "ack-frame", "signature", "signature-wrong", "signature-required", "handshake", "socket-send"}
				want = len(only)
			}
			results := mustJudge(t, patience, "http://"+host, keys[0], keys[1], only...)
			if len(results) != want {
				t.Errorf("%d results of %d checks", len(results), want)
			}
			for _, r := range results {
				if skip := r.Name == "signature-required" && flags == nil; r.Passed == skip || r.Must == "" || r.Section == "" {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// A server that knows the interface document, and nothing that goes beyond it.
func TestAServerThatKnowsOnlyTheInterfacePasses(t *testing.T) {
	t.Parallel()
	host, keys := mustServe(t, []string{"a^plain", "b^plain", "c^plain", "d^plain"})
	plain := spoil{
		ask: func(a *asked) {
			for _, name := range []string{"Idempotency-Key", "Prefer", "X-Request-Signature"} {
				a.header.Del(name)
			}
			if strings.HasSuffix(a.path, "/whoami") || strings.HasSuffix(a.path, "/claim") {
				a.refuse = http.StatusNotFound
			}
			a.query.Del("events")
		},
		answer: func(a *asked, give *answered) {
			if give.status/100 != 2 {
				give.body, give.header = "no", http.Header{"Content-Type": {"text/plain"}}
			}
		},
		up: func(text string) bool { return strings.Contains(text, `"ack"`) },
	}
	var known []string
	for _, c := range conformance.Checks() {
		if c.Name != "socket-events" {
			known = append(known, c.Name)
		}
	}
	results := mustJudge(t, patience, mustServeWrong(t, plain, host, keys[0], keys[1]), keys[0], keys[1], known...)
	// It is asked for frames that never come.
	results = append(results, mustJudge(t, time.Second, mustServeWrong(t, plain, host, keys[2], keys[3]), keys[2], keys[3], "socket-events")...)
	for _, r := range results {
		if r.Failed() || !r.Beyond && !r.Passed && r.Skipped == "" {
			t.Errorf("%+v", r)
		}
		beyond := []string{"whoami", "request-signature", "idempotency", "sender", "reply", "claim", "socket-events", "socket-send", "problems"}
		if slices.Contains(beyond, r.Name) && r.Passed {
			t.Errorf("%s passed, and the server does not know it", r.Name)
		}
	}
}

func status(method, suffix string, status int) spoil {
	return spoil{answer: func(a *asked, give *answered) {
		if a.is(method, suffix) {
			give.status = status
		}
	}}
}

// ask makes a spoil that changes some requests, and signs them again.
func ask(when func(*asked) bool, change func(*asked)) spoil {
	return spoil{ask: func(a *asked) {
		if when(a) {
			change(a)
			a.resign()
		}
	}}
}

func always(*asked) bool { return true }

func never(*asked) {}

func drop(name string) spoil {
	return ask(always, func(a *asked) { a.query.Del(name) })
}

func body(old, new string) spoil {
	return spoil{answer: func(a *asked, give *answered) { give.body = regexp.MustCompile(old).ReplaceAllString(give.body, new) }}
}

func frames(old, new string) spoil {
	return spoil{down: func(text string) []string { return []string{regexp.MustCompile(old).ReplaceAllString(text, new)} }}
}

func isGet(suffix string) func(*asked) bool {
	return func(a *asked) bool { return a.is("GET", suffix) }
}

// spoils has a server for each check, which breaks the rule of that check.
var spoils = map[string]spoil{
	"send":              status("POST", "/messages", 200),
	"send-conversation": ask(always, func(a *asked) { a.body = strings.Replace(a.body, `"conversation_id"`, `"conversation"`, 1) }),
	"send-payload": {ask: func(a *asked) {
		if strings.Contains(a.body, `"payload":{},`) {
			a.refuse = 400
		}
	}},
	"get-message": {answer: func(a *asked, give *answered) {
		if a.header.Get("X-Mecha-Key") == a.second.Key {
			give.status = 403
		}
	}},
	"get-message-others": ask(func(a *asked) bool { return strings.Contains(a.path, "/messages/") }, func(a *asked) { a.header.Set("X-Mecha-Key", a.first.Key) }),
	"get-payload":        status("GET", "/payload", 404),
	"get-payload-others": ask(isGet("/payload"), func(a *asked) { a.header.Set("X-Mecha-Key", a.second.Key) }),
	"ack":                status("POST", "/ack", 500),
	"deliver":            status("POST", "/deliver", 404),
	"list":               body(`msg_`, `m_`),
	"list-time":          ask(isGet("/messages"), func(a *asked) { a.query.Del("since"); a.query.Del("until") }),
	"list-cursor":        drop("since_message_id"),
	"list-limit":         drop("limit"),
	"list-default": ask(isGet("/messages"), func(a *asked) {
		if a.query.Get("limit") == "" {
			a.query.Set("limit", "50")
		}
	}),
	"push":         frames(`"payload_base64":"`, `"payload_base64":"IA==`),
	"push-kinds":   {down: func(text string) []string { return []string{`{"type":"hello"}`, text} }},
	"ack-frame":    {up: func(text string) bool { return !strings.Contains(text, `"ack"`) }},
	"sync":         drop("since_message_id"),
	"sync-limit":   drop("sync_limit"),
	"sync-default": ask(func(a *asked) bool { return a.isSocket() }, func(a *asked) { a.query.Set("sync_limit", "1000") }),
	"search":       status("POST", "/search", 501),
	"key-required": {ask: func(a *asked) {
		if a.header.Get("X-Mecha-Key") == "" {
			a.resign()
		}
	}},
	"timestamp-required": {ask: func(a *asked) {
		if a.header.Get("X-Request-Timestamp") == "yesterday" {
			a.resign()
		}
	}},
	"timestamp-forms": {ask: func(a *asked) {
		if !strings.HasSuffix(a.header.Get("X-Request-Timestamp"), "Z") {
			a.refuse = 401
		}
	}},
	"nonce-required": {ask: func(a *asked) {
		if a.header.Get("X-Nonce") == "" {
			a.resign()
		}
	}},
	"signature": {ask: func(a *asked) {
		a.body = strings.TrimPrefix(a.body, " ") // it has been parsed and written again
	}},
	"signature-wrong":    ask(always, never),
	"signature-required": ask(func(a *asked) bool { return a.is("POST", "/messages") }, never),
	"handshake":          ask(func(a *asked) bool { return a.isSocket() }, never),

	"whoami":            status("GET", "/whoami", 404),
	"nonce-once":        ask(always, never),
	"timestamp-range":   ask(always, never),
	"request-signature": {ask: func(a *asked) { a.header.Del("X-Request-Signature") }},
	"idempotency":       {ask: func(a *asked) { a.header.Del("Idempotency-Key") }},
	"payload-bytes":     body(`^\{ "price": 180.00`, `{"price":180`),
	"strict-json":       ask(always, func(a *asked) { a.body = strings.Replace(a.body, `"TO":"x^y",`, "", 1) }),
	"sender":            ask(always, func(a *asked) { a.body = strings.Replace(a.body, `"from"`, `"sender"`, 1) }),
	"recipient": ask(always, func(a *asked) {
		a.body = regexp.MustCompile(`nobody-\w+\^conformance`).ReplaceAllString(a.body, string(a.second.Address))
	}),
	"ack-rules": body(`"duplicate":true`, `"duplicate":false`),
	"record":    body(`"state":"delivered"`, `"state":"queued"`),
	"history":   body(`"has_more"`, `"more"`),
	"reply":     {ask: func(a *asked) { a.header.Del("Prefer") }},
	"claim": {ask: func(a *asked) {
		if strings.HasSuffix(a.path, "/claim") { // everybody gets everything
			a.method, a.path, a.query, a.body = "GET", strings.Replace(a.path, "/claim", "/messages", 1), url.Values{"state": {"pending"}, "limit": {"1000"}}, ""
			a.resign()
		}
	}},
	"socket-events": frames(`"ack_ok"`, `"ack"`),
	"socket-send":   frames(`"type":"sent"`, `"type":"error"`),
	"socket-faults": {down: func(text string) []string {
		if strings.Contains(text, `"error"`) {
			return nil
		}
		return []string{text}
	}},
	"problems": {answer: func(a *asked, give *answered) {
		if give.status == 404 {
			give.header.Set("Content-Type", "application/json")
		}
	}},
}

// Each check fails for a server that breaks its rule.
func TestAWrongServerFails(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range conformance.Checks() {
		names = append(names, "a-"+c.Name+"^wrong", "b-"+c.Name+"^wrong")
	}
	host, keys := mustServe(t, names)
	strictHost, strictKeys := mustServe(t, []string{"a^strict", "b^strict"}, "--require-message-signature")
	t.Run("checks", func(t *testing.T) { // the relays stop when all are done
		for i, c := range conformance.Checks() {
			s, ok := spoils[c.Name]
			if !ok {
				t.Errorf("there is no wrong server for %s", c.Name)
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				if !scratch.Long(t) && i%6 != 0 {
					t.Skip("takes long; -long judges all wrong servers")
				}
				host, first, second := host, keys[2*i], keys[2*i+1]
				if c.Name == "signature-required" {
					host, first, second = strictHost, strictKeys[0], strictKeys[1]
				}
				r := mustJudgeSilence(t, 10*time.Second, 0, mustServeWrong(t, s, host, first, second), first, second, c.Name)
				if len(r) != 1 || r[0].Passed || r[0].Skipped != "" || len(r[0].Why) == 0 || r[0].Failed() == c.Beyond {
					t.Fatalf("%+v", r)
				}
				t.Log(r[0].Why[0])
			})
		}
	})
}
