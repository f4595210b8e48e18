package http_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	nethttp "net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
)

// mecha is a client that holds a key.
type mecha struct {
	r *testRelay
	relay.IssuedKey
}

// in returns the client to a subtest.
func (m mecha) in(t testing.TB) mecha {
	r := *m.r
	r.t = t
	return mecha{&r, m.IssuedKey}
}

func (r *testRelay) mustIssue(a relay.Address, options ...func(*relay.IssueKey)) mecha {
	r.t.Helper()
	i := &relay.IssueKey{At: r.clock.Now(), Address: a}
	for _, f := range options {
		f(i)
	}
	k, err := r.db.Issue(i)
	if err != nil {
		r.t.Fatal(err)
	}
	return mecha{r, k}
}

func (r *testRelay) mustRevoke(m mecha) {
	r.t.Helper()
	if err := r.db.Revoke(&relay.RevokeKey{At: r.clock.Now(), ID: m.ID}); err != nil {
		r.t.Fatal(err)
	}
}

// call is a request that has not been sent, or may be sent again. It is signed
// when it is sent, unless secret is "".
type call struct {
	method, path, body string
	key, secret        string
	nonce, timestamp   string
	chunked            bool
	header             nethttp.Header // in place of what would be sent; no values: left out
}

type change func(*call)

var nonces atomic.Int64

func (m mecha) prepare(method, path, body string, changes ...change) *call {
	c := &call{method: method, path: path, body: body, key: m.Text, secret: m.Text, header: nethttp.Header{},
		nonce: fmt.Sprint("nonce-", nonces.Add(1)), timestamp: relay.FormatTime(m.r.clock.Now())}
	if m.Secret != "" {
		c.secret = m.Secret
	}
	for _, f := range changes {
		f(c)
	}
	return c
}

func unsigned(c *call) { c.secret = "" }
func chunked(c *call)  { c.chunked = true }

func nonce(n string) change      { return func(c *call) { c.nonce = n } }
func stamped(ts string) change   { return func(c *call) { c.timestamp = ts } }
func signedBy(s string) change   { return func(c *call) { c.secret = s } }
func at(t time.Time) change      { return stamped(t.Format(time.RFC3339Nano)) }
func idempotent(k string) change { return with("Idempotency-Key", k) }

// with sends a header with exactly these values; without any, not at all.
func with(name string, values ...string) change {
	return func(c *call) { c.header[nethttp.CanonicalHeaderKey(name)] = values }
}

func all(changes ...change) change {
	return func(c *call) {
		for _, f := range changes {
			f(c)
		}
	}
}

func (c *call) signature() []byte { return relay.Sign(c.secret, []byte(c.body), c.nonce, c.timestamp) }

func (c *call) request(url string) (*nethttp.Request, error) {
	var body io.Reader
	if c.body != "" {
		body = strings.NewReader(c.body)
	}
	if c.chunked {
		body = io.MultiReader(body) // of a length that the client does not know
	}
	q, err := nethttp.NewRequest(c.method, url+c.path, body)
	if err != nil {
		return nil, err
	}
	h := q.Header
	h["X-Mecha-Key"], h["X-Nonce"], h["X-Request-Timestamp"] = []string{c.key}, []string{c.nonce}, []string{c.timestamp}
	if c.secret != "" {
		h["X-Signature"] = []string{base64.StdEncoding.EncodeToString(c.signature())}
	}
	maps.Copy(h, c.header)
	maps.DeleteFunc(h, func(_ string, values []string) bool { return len(values) == 0 })
	return q, nil
}

// try sends c; an error means that there was no response.
func (r *testRelay) try(c *call) (reply, error) {
	q, err := c.request(r.url)
	if err != nil {
		return reply{}, err
	}
	a, err := r.client.Do(q)
	if err != nil {
		return reply{}, err
	}
	defer a.Body.Close()
	to := reply{t: r.t, of: c.method + " " + c.path, status: a.StatusCode, header: a.Header}
	if a.StatusCode != nethttp.StatusSwitchingProtocols {
		to.body, err = io.ReadAll(a.Body)
	}
	return to, err
}

func (r *testRelay) mustDo(c *call) reply {
	r.t.Helper()
	a, err := r.try(c)
	if err != nil {
		r.t.Fatal(err)
	}
	if a.status != nethttp.StatusSwitchingProtocols && a.header.Get("X-Request-Id") == "" {
		r.t.Errorf("%s: no X-Request-Id", a.of)
	}
	return a
}

func (m mecha) do(method, path, body string, changes ...change) reply {
	m.r.t.Helper()
	return m.r.mustDo(m.prepare(method, path, body, changes...))
}

func (m mecha) get(path string, changes ...change) reply {
	m.r.t.Helper()
	return m.do("GET", path, "", changes...)
}

func (m mecha) post(path, body string, changes ...change) reply {
	m.r.t.Helper()
	return m.do("POST", path, body, changes...)
}

const (
	messages = "/api/v1/messages"
	whoami   = "/api/v1/whoami"
)

func messagePath(id string) string { return messages + "/" + id }
func historyPath(m mecha) string   { return "/api/v1/mecha/" + string(m.Mecha.Address) + "/messages" }
func inboxPath(m mecha) string     { return "/api/v1/mecha/" + string(m.Mecha.Address) + "/inbox" }
func socketPath(m mecha) string    { return "/api/v1/ws/mecha/" + string(m.Mecha.Address) }

var handshake = all(with("Connection", "Upgrade"), with("Upgrade", "websocket"),
	with("Sec-WebSocket-Version", "13"), with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="))

// letter is the body of a send; fields is more members, as in `"priority":"high"`.
func letter(to mecha, fields ...string) string {
	return `{` + strings.Join(append([]string{`"to":"` + string(to.Mecha.Address) + `"`, `"payload":{}`}, fields...), ",") + `}`
}

func ackBody(status string) string {
	return `{"status":"` + status + `","client_ts":"2026-11-20T08:00:00Z"}`
}

type sent struct {
	MessageID      string `json:"message_id"`
	ConversationID string `json:"conversation_id"`
	CreatedAt      string `json:"created_at"`
}

func (m mecha) mustSend(to mecha, fields ...string) (s sent) {
	m.r.t.Helper()
	m.post(messages, letter(to, fields...)).want(201).into(&s)
	return s
}

func (m mecha) mustAck(id, status string) reply {
	m.r.t.Helper()
	return m.post(messagePath(id)+"/ack", ackBody(status)).want(200)
}

func (m mecha) mustDeliver(id string) reply {
	m.r.t.Helper()
	return m.post(messagePath(id)+"/deliver", "").want(200)
}

type record struct {
	MessageID      string  `json:"message_id"`
	ConversationID string  `json:"conversation_id"`
	Version        string  `json:"version"`
	From           string  `json:"from"`
	To             string  `json:"to"`
	MessageType    string  `json:"message_type"`
	Priority       string  `json:"priority"`
	CorrelationID  string  `json:"correlation_id"`
	State          string  `json:"state"`
	CreatedAt      string  `json:"created_at"`
	DeliveredAt    *string `json:"delivered_at"`
	AcknowledgedAt *string `json:"acknowledged_at"`
	ExpiresAt      *string `json:"expires_at"`
	Ack            *struct {
		Status   string  `json:"status"`
		ClientTS string  `json:"client_ts"`
		At       string  `json:"at"`
		Detail   *string `json:"detail"`
	} `json:"ack"`
	PayloadBytes  int             `json:"payload_bytes"`
	PayloadSHA256 string          `json:"payload_sha256"`
	Signed        bool            `json:"signed"`
	Payload       json.RawMessage `json:"payload"`
}

func (m mecha) record(id string) (got record) {
	m.r.t.Helper()
	m.get(messagePath(id)).want(200).into(&got)
	return got
}

type page struct {
	Messages   []record `json:"messages"`
	HasMore    bool     `json:"has_more"`
	NextCursor *string  `json:"next_cursor"`
	Limit      int      `json:"limit"`
}

func (p page) ids() (all []string) {
	for _, m := range p.Messages {
		all = append(all, m.MessageID)
	}
	return all
}

func (m mecha) history(query string) (p page) {
	m.r.t.Helper()
	m.get(historyPath(m) + "?" + query).want(200).into(&p)
	return p
}

// reply is what came back.
type reply struct {
	t      testing.TB
	of     string
	status int
	header nethttp.Header
	body   []byte
}

// want expects a success: its status, and a JSON object. A newline ends every one
// but the payload, which is what a client has put there.
func (a reply) want(status int) reply {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status %d, want %d: %s", a.of, a.status, status, a.body)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/json" || !json.Valid(a.body) || a.body[0] != '{' {
		a.t.Fatalf("%s: %s, no JSON object: %s", a.of, ct, a.body)
	}
	if exact := strings.HasSuffix(a.of, "/payload"); (a.body[len(a.body)-1] == '\n') == exact {
		a.t.Errorf("%s: the body ends with %q", a.of, a.body[len(a.body)-1:])
	}
	return a
}

func (a reply) into(v any) {
	a.t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.t.Fatalf("%s: %v: %s", a.of, err, a.body)
	}
}

// field is one member of the body, as JSON text; "" otherwise.
func (a reply) field(name string) string {
	a.t.Helper()
	var all map[string]json.RawMessage
	a.into(&all)
	return string(all[name])
}

func (a reply) wantField(name, value string) reply {
	a.t.Helper()
	if got := a.field(name); got != value {
		a.t.Errorf("%s: %s is %s, want %s", a.of, name, got, value)
	}
	return a
}

type problem struct {
	Type, Title, Detail, Code, Error, Message, Docs string
	Status                                          int
	RequestID                                       string   `json:"request_id"`
	ServerTime                                      string   `json:"server_time"`
	DidYouMean                                      []string `json:"did_you_mean"`
	Errors                                          []struct{ Field, Reason string }
}

// wantProblem expects a refusal: RFC 9457, with every field of PROTOCOL §6 and
// the headers that go with the status.
func (a reply) wantProblem(status int, code relay.Code) (p problem) {
	a.t.Helper()
	if a.status != status || a.header.Get("Content-Type") != "application/problem+json" {
		a.t.Fatalf("%s: status %d %s, want %d %s: %s", a.of, a.status, a.header.Get("Content-Type"), status, code, a.body)
	}
	a.into(&p)
	if a.body[len(a.body)-1] != '\n' || strings.Contains(string(a.body), `\u003`) {
		a.t.Errorf("%s: not for people to read: %s", a.of, a.body)
	}
	if p.Code != string(code) || p.Error != p.Code || p.Status != status || p.Message != p.Detail ||
		p.Type == "" || p.Title == "" || p.Detail == "" || p.Docs == "" || p.RequestID != a.header.Get("X-Request-Id") {
		a.t.Fatalf("%s: want %d %s, got the problem %s", a.of, status, code, a.body)
	}
	retry, err := strconv.Atoi(a.header.Get("Retry-After"))
	switch {
	case (status == 401) != (a.header.Get("WWW-Authenticate") == "Mecha-Key"):
		a.t.Errorf("%s: %d with WWW-Authenticate %q", a.of, status, a.header.Get("WWW-Authenticate"))
	case (status == 429 && p.Code != string(relay.ConversationFull) || status == 503) && (err != nil || retry < 1):
		a.t.Errorf("%s: %d with Retry-After %q", a.of, status, a.header.Get("Retry-After"))
	case status == 405 && a.header.Get("Allow") == "":
		a.t.Errorf("%s: 405 without Allow", a.of)
	}
	return p
}

// wantFault is wantProblem that names a field.
func (a reply) wantFault(status int, code relay.Code, field string) {
	a.t.Helper()
	p := a.wantProblem(status, code)
	if len(p.Errors) != 1 || p.Errors[0].Field != field || p.Errors[0].Reason == "" {
		a.t.Errorf("%s: want a fault of %s: %s", a.of, field, a.body)
	}
}

// anyone asks without credentials.
func (r *testRelay) anyone(method, path string) reply {
	r.t.Helper()
	return mecha{r: r}.do(method, path, "", with("X-Mecha-Key"), with("X-Nonce"), with("X-Request-Timestamp"), unsigned)
}
