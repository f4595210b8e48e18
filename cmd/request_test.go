package cmd_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// client is shared: its connections are reused as an agent's would be.
var client = &http.Client{Timeout: 90 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// agent is a Mecha with a key.
type agent struct {
	Address string  `json:"mecha_id"`
	KeyID   string  `json:"key_id"`
	Key     string  `json:"key"`
	Secret  *string `json:"signing_secret"`
}

// issue makes a key for each address.
func issue(t testing.TB, db string, args ...string) []agent {
	t.Helper()
	return agents(t, mustRelay(t, append([]string{"key", "create", "--create", "--json", "--db", db}, args...)...))
}

// agents reads what key create and key rotate print.
func agents(t testing.TB, lines string) (all []agent) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var a agent
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.Key == "" {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, a)
	}
	return all
}

// request is one signed request. Doing it twice is a replay.
type request struct {
	method, path, body string
	header             http.Header
}

// request signs again. more are further headers, as name and value.
func (a agent) request(method, path, body string, more ...string) request {
	return a.requestAt(time.Now(), method, path, body, more...)
}

// requestAt is request by a clock of its own.
func (a agent) requestAt(now time.Time, method, path, body string, more ...string) request {
	nonce, timestamp := rand.Text(), now.UTC().Format(time.RFC3339Nano)
	secret := a.Key
	if a.Secret != nil {
		secret = *a.Secret
	}
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s|%s|%s", body, nonce, timestamp)
	h := http.Header{}
	h.Set("X-Mecha-Key", a.Key)
	h.Set("X-Nonce", nonce)
	h.Set("X-Request-Timestamp", timestamp)
	h.Set("X-Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for i := 0; i+1 < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return request{method, path, body, h}
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// to sends the request. An error means that its outcome is unknown.
func (r request) to(url string) (answer, error) { return r.by(client, url) }

// by is to, by another client.
func (r request) by(client *http.Client, url string) (answer, error) {
	req, err := http.NewRequest(r.method, url+r.path, strings.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	req.Header = r.header.Clone()
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body}, err
}

// ask sends one signed request and expects an answer. A node of a cluster that says "not now" gets
// another request, with a nonce of its own. At a load of 30 a node is without its lease for up to 3.4 s.
func (s *server) ask(a agent, method, path, body string, more ...string) answer {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ans, err := a.request(method, path, body, more...).to(s.url)
		if err != nil {
			s.t.Fatal(err)
		}
		if !s.node || !ans.isNotNow() || time.Now().After(end) {
			return ans
		}
	}
}

// isNotNow reports whether a node has refused a request because it does not hear the others just now,
// or because the log had no leader for 10 s. Nothing was written.
func (a answer) isNotNow() bool {
	return a.status == http.StatusServiceUnavailable && (a.code() == "not_current" || a.code() == "overloaded")
}

// want expects a status and gives the body.
func (a answer) want(t testing.TB, status int) []byte {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a.body
}

// wantProblem expects a refusal of a code.
func (a answer) wantProblem(t testing.TB, status int, code string) {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Fatalf("status %d %s, want %d %s", a.status, a.body, status, code)
	}
}

func (a answer) code() string {
	var p struct{ Code string }
	json.Unmarshal(a.body, &p) // no problem document: no code
	return p.Code
}

// record is what the tests read of a message.
type record struct {
	MessageID      string `json:"message_id"`
	ConversationID string `json:"conversation_id"`
	From, To       string
	InReplyTo      string `json:"in_reply_to"`
	MessageType    string `json:"message_type"`
	State          string
	CreatedAt      time.Time `json:"created_at"`
	Ack            *struct{ Status string }
	Signed         bool
	Payload        json.RawMessage
}

func TestSignaturesCanBeRequired(t *testing.T) {
	db := tempDB(t)
	a := issue(t, db, "a^dev")[0]
	unsigned := func() request {
		r := a.request("GET", "/api/v1/whoami", "")
		r.header.Del("X-Signature")
		return r
	}
	for _, c := range []struct {
		env, args []string
		status    int
	}{
		{nil, nil, 200},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=1"}, nil, 401},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=true"}, nil, 401},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=yes"}, nil, 401},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=0"}, nil, 200},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=false"}, nil, 200},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE="}, nil, 200},
		{nil, []string{"--require-message-signature"}, 401},
		{[]string{"RELAY_REQUIRE_MESSAGE_SIGNATURE=true"}, nil, 401},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=1"}, []string{"--require-message-signature=false"}, 200},
	} {
		var s *server
		alone(t, c.env, func() { s = serveHere(t, db, c.args...) })
		ans, err := unsigned().to(s.url)
		if err != nil || ans.status != c.status {
			t.Errorf("%v %v: %v, %d %s; want %d", c.env, c.args, err, ans.status, ans.body, c.status)
		}
		if c.status == 401 && ans.code() != "signature_required" {
			t.Errorf("%v %v: %s", c.env, c.args, ans.body)
		}
		var who map[string]any
		if err := json.Unmarshal(s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200), &who); err != nil || who["signature_required"] != (c.status == 401) {
			t.Errorf("%v %v: %v, %v", c.env, c.args, err, who)
		}
		s.end()
	}
}

// lines reads the JSON lines that a command printed.
func lines[T any](t testing.TB, out string) (all []T) {
	t.Helper()
	for line := range strings.Lines(out) {
		all = append(all, parse[T](t, []byte(line)))
	}
	return all
}
