package http_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
	"relay/http"
	"relay/http/apitest"
)

// socket is a WebSocket of a Mecha, for live messages alone.
type socket struct {
	t    testing.TB
	conn *websocket.Conn
	refs int
}

// heard is a frame of the relay.
type heard struct {
	sent
	Type, Ref string
	Code      string
	Message   string
	Replayed  bool
	Payload   []byte `json:"payload_base64"`
}

func (m mecha) mustOpen() *socket {
	m.r.t.Helper()
	return &socket{t: m.r.t, conn: m.mustListen("")}
}

func (s *socket) write(text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// next reads a frame, which must be as it is described.
func (s *socket) next() (f heard) {
	s.t.Helper()
	f, text := s.read()
	if fault := apitest.CheckFrame(text); fault != "" {
		s.t.Errorf("the frame %.300s is not as it is described: %s", text, fault)
	}
	return f
}

// read reads a frame. A flood of them would take too long to hold each against the document.
func (s *socket) read() (f heard, text []byte) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, text, err := s.conn.Read(ctx)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return f, text
}

// send sends a message and gives the answer. fields is more members of the frame, as in
// `"nonce":"n"`.
func (s *socket) send(message string, fields ...string) heard {
	s.t.Helper()
	s.refs++
	ref := fmt.Sprint("r", s.refs)
	s.write(frameOf(ref, message, fields...))
	f := s.next()
	if f.Ref != ref || f.Type != "sent" && f.Type != "error" {
		s.t.Fatalf("got %+v, want the answer to %s", f, ref)
	}
	return f
}

func frameOf(ref, message string, fields ...string) string {
	more := strings.Join(append([]string{""}, fields...), ",")
	return fmt.Sprintf(`{"type":"send","ref":%q,"message":%s%s}`, ref, message, more)
}

// outcome is "" for a message that was taken, else the code.
func (f heard) outcome(t testing.TB) string {
	t.Helper()
	if taken := f.Type == "sent"; taken != (f.MessageID != "") || taken == (f.Code != "") {
		t.Fatalf("got %+v", f)
	}
	return f.Code
}

// A message over a socket is taken, and kept, or refused, just as the same bytes over HTTP.
func TestSendsOverASocketFollowTheRulesOfHTTP(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.db.MaxPending = 60 })
	alice, bob, carol, full := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo"), r.mustIssue("full^demo")
	r.mustFill(alice, full, 60)
	theirs := bob.mustSend(carol).ConversationID
	s := alice.mustOpen()
	deep := strings.Repeat(`{"a":`, 63) + "{}" + strings.Repeat("}", 63)
	for _, body := range []string{
		letter(bob), letter(bob, `"from":"alice^demo"`), letter(bob, `"from":"bob^demo"`), letter(bob, `"from":"b"`),
		letter(bob, `"version":"9","message_type":"t u","priority":"urgent","correlation_id":"c","conversation_id":"mine"`, `"unknown":1`),
		letter(bob, `"message_type":7`), letter(bob, `"message_type":"\u0007"`), letter(bob, `"ttl_seconds":0`), letter(bob, `"ttl_seconds":60`), letter(bob, `"ttl_seconds":1,"expires_at":"2030-01-01T00:00:00Z"`),
		letter(bob, `"expires_at":"2020-01-01T00:00:00Z"`), letter(bob, `"expires_at":"soon"`), letter(bob, `"version":null,"correlation_id":""`),
		letter(bob, `"conversation_id":"conv_00000000000000000000000000"`), letter(bob, `"conversation_id":"`+theirs+`"`), letter(bob, `"conversation_id":"a b"`),
		letter(full), `{"to":"nobody^demo","payload":{}}`, `{"to":"bobb^demo","payload":{}}`, `{"to":"nobody","payload":{}}`, `{"payload":{}}`, `{"to":"bob^demo"}`, `{"to":"bob^demo","payload":[]}`,
		`{"to":"bob^demo","payload":` + deep + `}`, `{"to":"bob^demo","payload":{"a":` + deep + `}}`, // 64 deep, and one more
		` { "payload" : {"n": 1.50e+1 , "n":2} , "to" : "bob^demo" } `, `{"to":"bob^demo","to":"bob^demo","payload":{}}`, `{"TO":"bob^demo","payload":{}}`, `{"to":"bob^demo","payload":{"x":"\ud800"}}`,
		`[]`, `7`, `"text"`, `{}`,
	} {
		a := alice.post(messages, body)
		var over heard
		a.into(&over)
		f := s.send(body)
		if got := f.outcome(t); got != over.Code || f.Type == "error" && f.Message == "" {
			t.Errorf("%.90s: HTTP says %q, the socket %q (%s)", body, over.Code, got, f.Message)
			continue
		}
		if f.Type == "error" {
			if strings.Contains(string(a.body), "did you mean") != strings.Contains(f.Message, "did you mean") {
				t.Errorf("%.90s: HTTP suggests %s, the socket %s", body, a.body, f.Message)
			}
			continue
		}
		one, two := alice.record(over.MessageID), alice.record(f.MessageID)
		if two.CreatedAt != f.CreatedAt || two.ConversationID != f.ConversationID {
			t.Errorf("%.90s: the answer is %+v, the record %+v", body, f, two)
		}
		if !one.Signed || two.Signed {
			t.Errorf("%.90s: signed over HTTP: %t, over the socket: %t", body, one.Signed, two.Signed)
		}
		one.MessageID, one.CreatedAt, one.Signed = two.MessageID, two.CreatedAt, false
		if one.ConversationID != "mine" {
			one.ConversationID = two.ConversationID
		}
		if fmt.Sprint(one) != fmt.Sprint(two) && one.ExpiresAt == nil {
			t.Errorf("%.90s: HTTP made %+v, the socket %+v", body, one, two)
		}
		p := bob.get(messagePath(over.MessageID) + "/payload").want(200)
		if q := bob.get(messagePath(f.MessageID) + "/payload").want(200); string(p.body) != string(q.body) {
			t.Errorf("HTTP kept %s, the socket %s", p.body, q.body)
		}
	}
}

// A frame that cannot be understood gets an error, with its ref where that is known, and
// the connection stays.
func TestFramesThatSendNothing(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBody = 1000 })
	alice := r.mustIssue("alice^demo")
	s, m := alice.mustOpen(), letter(alice)
	for _, row := range []struct {
		frame string
		code  relay.Code
		ref   string
	}{
		{`{"type":"send","message":` + m + `}`, relay.InvalidFrame, ""},
		{`{"type":"send","ref":"","message":` + m + `}`, relay.InvalidFrame, ""},
		{`{"type":"send","ref":null,"message":` + m + `}`, relay.InvalidFrame, ""},
		{`{"type":"send","ref":7,"message":` + m + `}`, relay.InvalidFrame, ""},
		{`{"type":"send","ref":"` + strings.Repeat("é", 65) + `","message":` + m + `}`, relay.InvalidFrame, ""},
		{`{"type":"send","ref":"r"}`, relay.InvalidFrame, "r"},
		{`{"type":"send","ref":"r","message":null}`, relay.InvalidFrame, "r"},
		{`{"type":"send","ref":"r\u0000\u2028","message":7}`, relay.InvalidJSON, "r\x00\u2028"},
		{`{"type":"send","ref":"r","message":{"to":"a^b"`, relay.InvalidJSON, "r"},
		{`{"type":"send","ref":"r","message":{},"message":{}}`, relay.InvalidJSON, "r"},
		{`{"type":"send","ref":"r","Message":{}}`, relay.InvalidJSON, "r"},
		{`{"type":"sends","ref":"r","message":{}}`, relay.InvalidFrame, "r"},
		{frameOf("r", m, `"idempotency_key":7`), relay.InvalidRequest, "r"},
		{frameOf("r", m, `"idempotency_key":"é"`), relay.InvalidIdempotencyKey, "r"},
		{frameOf("r", m, `"idempotency_key":"`+strings.Repeat("k", 129)+`"`), relay.InvalidIdempotencyKey, "r"},
		{frameOf("r", letter(alice, `"x":"`+strings.Repeat("x", 1000)+`"`)), relay.PayloadTooLarge, "r"},
		{`{"type":"ack","ref":"r","message_id":"msg_0","status":"completed","client_ts":"2026-11-20T08:00:00Z","nonce":7,"message":"note"}`, relay.MessageNotFound, ""},
	} {
		s.write(row.frame)
		if f := s.next(); f.Type != "error" || f.Code != string(row.code) || f.Ref != row.ref || f.Message == "" {
			t.Errorf("%.120s: got %+v, want %s of %q", row.frame, f, row.code, row.ref)
		}
	}
	long := strings.Repeat("é", 64)
	s.write(frameOf(long, m))
	if first, second := s.next(), s.next(); (first.Type != "sent" || first.Ref != long) && (second.Type != "sent" || second.Ref != long) {
		t.Errorf("got %+v and %+v", first, second)
	}
	r.wantMessages(1)
}

// signedFrame signs the exact bytes of a message.
func (m mecha) signedFrame(message string, changes ...change) []string {
	c := m.prepare("", "", message, changes...)
	return []string{fmt.Sprintf(`"nonce":%q,"timestamp":%q,"signature":%q`, c.nonce, c.timestamp, base64.StdEncoding.EncodeToString(c.signature()))}
}

// A frame has in its fields what a request has in its headers, by the same rules.
func TestSignaturesOfFrames(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo", func(i *relay.IssueKey) { i.WithSecret = true })
	now := relay.FormatTime(r.clock.Now())
	body := `{"to":"bob^demo" ,"payload": {"n":1.0}}`
	sign := func(secret, body, nonce, timestamp string) string {
		return fmt.Sprintf(`"nonce":%q,"timestamp":%q,"signature":%q`, nonce, timestamp, base64.RawURLEncoding.EncodeToString(relay.Sign(secret, []byte(body), nonce, timestamp)))
	}
	alice.get(whoami, nonce("n-http")).want(200)
	bob.post(messages, letter(bob), unsigned, nonce("n-bob")).want(201)
	for _, row := range []struct {
		about, fields string
		bobs          bool // the frame comes from bob's socket
		code          relay.Code
	}{
		{"signed", sign(alice.Text, body, "n-1", now), false, ""},
		{"the nonce again", sign(alice.Text, body, "n-1", now), false, relay.NonceReused},
		{"a nonce of a request", sign(alice.Text, body, "n-http", now), false, relay.NonceReused},
		{"a nonce of another key", sign(alice.Text, body, "n-bob", now), false, ""},
		{"unsigned, with a nonce", `"nonce":"n-2","timestamp":"` + now + `"`, false, ""},
		{"unsigned, with that nonce again", `"nonce":"n-2","timestamp":"` + now + `"`, false, relay.NonceReused},
		{"signed with another secret", sign(bob.Text, body, "n-3", now), false, relay.InvalidSignature},
		{"a bad signature does not use the nonce up", sign(alice.Text, body, "n-3", now), false, ""},
		{"other bytes of the same message", sign(alice.Text, `{"to":"bob^demo","payload":{"n":1.0}}`, "n-4", now), false, relay.InvalidSignature},
		{"white space around the message", sign(alice.Text, " "+body+" ", "n-4", now), false, relay.InvalidSignature},
		{"another nonce", strings.Replace(sign(alice.Text, body, "n-5", now), "n-5", "n-6", 1), false, relay.InvalidSignature},
		{"a separate secret", sign(bob.Secret, body, "n-1", now), true, ""},
		{"the key's text beside a separate secret", sign(bob.Text, body, "n-2", now), true, relay.InvalidSignature},
		{"no timestamp", `"nonce":"n-7"`, false, relay.MissingHeader},
		{"no nonce", `"timestamp":"` + now + `"`, false, relay.MissingHeader},
		{"a signature alone", `"signature":"AAAA"`, false, relay.MissingHeader},
		{"null is as good as nothing", `"nonce":null,"timestamp":"","signature":null`, false, ""},
		{"a bad nonce", sign(alice.Text, body, "a|b", now), false, relay.MalformedHeader},
		{"a bad timestamp", sign(alice.Text, body, "n-8", "now"), false, relay.MalformedHeader},
		{"an old timestamp", sign(alice.Text, body, "n-8", relay.FormatTime(r.clock.Now().Add(-time.Hour))), false, relay.TimestampOutOfRange},
		{"no Base64", `"nonce":"n-8","timestamp":"` + now + `","signature":"!"`, false, relay.MalformedHeader},
	} {
		s := alice.mustOpen()
		if row.bobs {
			s = bob.mustOpen()
		}
		f := s.send(body, row.fields)
		s.conn.CloseNow()
		if got := f.outcome(t); got != string(row.code) {
			t.Errorf("%s: got %q (%s), want %q", row.about, got, f.Message, row.code)
			continue
		}
		if signs := strings.Contains(row.fields, `"signature":"`); row.code == "" && alice.inEither(bob, f.MessageID).Signed != signs {
			t.Errorf("%s: signed should be %t", row.about, signs)
		}
	}
}

// inEither reads the record of a message that a or b has sent.
func (m mecha) inEither(b mecha, id string) (got record) {
	if a := m.get(messagePath(id)); a.status == 200 {
		a.into(&got)
		return got
	}
	return b.record(id)
}

// Where requests must be signed, frames that send must be, too; acks need not.
func TestFramesMustBeSignedWhereRequestsMust(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*http.Config){
		"signature":         func(c *http.Config) { c.RequireSignature = true },
		"request signature": func(c *http.Config) { c.RequireRequestSignature = true },
	} {
		t.Run(name, func(t *testing.T) {
			r := mustServe(t, func(s *settings) { set(&s.api) })
			alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
			q, err := alice.prepare("GET", socketPath(alice)+"?sync_limit=0", "").request(r.url)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("X-Request-Signature", base64.StdEncoding.EncodeToString(relay.SignRequest(alice.Text, "GET", q.URL.RequestURI(), nil, q.Header.Get("X-Nonce"), q.Header.Get("X-Request-Timestamp"))))
			conn, _, err := websocket.Dial(context.Background(), q.URL.String(), &websocket.DialOptions{HTTPHeader: q.Header})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseNow()
			s, body := &socket{t: t, conn: conn}, letter(bob)
			for fields, code := range map[string]relay.Code{
				"":                relay.SignatureRequired,
				`"nonce":"n-one"`: relay.SignatureRequired,
				`"nonce":"n-two","timestamp":"2026-11-20T08:00:00Z"`: relay.SignatureRequired,
				`"signature":"AAAA"`: relay.MissingHeader,
			} {
				var more []string
				if fields != "" {
					more = []string{fields}
				}
				if f := s.send(body, more...); f.outcome(t) != string(code) {
					t.Errorf("%s: got %+v, want %s", fields, f, code)
				}
			}
			r.mustFill(bob, alice, 1)
			m := s.next()
			s.write(`{"type":"ack","message_id":"` + m.MessageID + `","status":"completed","client_ts":"2026-11-20T08:00:00Z"}`)
			if f := s.send(body, alice.signedFrame(body)...); f.Type != "sent" {
				t.Errorf("got %+v", f)
			}
			if m, err := r.db.Message(context.Background(), alice.Mecha.Number, relay.MessageID(m.MessageID)); err != nil || m.State != relay.Acknowledged {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
}

// A message that is sent again with its idempotency_key is not sent twice, by any path,
// after a restart, and though its nonce is used.
func TestAFrameIsSentOnceByItsIdempotencyKey(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	body, key := letter(bob), `"idempotency_key":"k-1"`
	s := alice.mustOpen()
	first := s.send(body, key)
	if first.Type != "sent" || first.Replayed {
		t.Fatalf("got %+v", first)
	}
	expectAgain := func(f heard) {
		t.Helper()
		if f.Type != "sent" || !f.Replayed || f.sent != first.sent {
			t.Fatalf("got %+v, want %+v again", f, first)
		}
	}
	expectAgain(s.send(body, key))
	a := alice.post(messages, body, idempotent("k-1")).want(201)
	if a.header.Get("Idempotent-Replayed") != "true" || a.field("message_id") != fmt.Sprintf("%q", first.MessageID) {
		t.Errorf("HTTP says %v %s", a.header, a.body)
	}
	if f := s.send(letter(bob, `"priority":"low"`), key); f.Code != string(relay.IdempotencyKeyReused) {
		t.Errorf("another body: %+v", f)
	}
	var posted sent
	alice.post(messages, body, idempotent("k-2")).want(201).into(&posted)
	if f := s.send(body, `"idempotency_key":"k-2"`); f.sent != posted || !f.Replayed {
		t.Errorf("got %+v, want that of HTTP %+v", f, posted)
	}
	signed := alice.signedFrame(body)
	again := s.send(body, append(signed, `"idempotency_key":"k-3"`)...)
	if f := s.send(body, append(signed, `"idempotency_key":"k-3"`)...); f.sent != again.sent || !f.Replayed {
		t.Errorf("the same frame again, nonce and all: %+v, want %+v", f, again)
	}
	if f := s.send(body, append(signed, `"idempotency_key":"k-4"`)...); f.Code != string(relay.NonceReused) {
		t.Errorf("the nonce with another key: %+v", f)
	}
	// Many at once, before any is answered.
	for i := range 20 {
		s.write(frameOf(fmt.Sprint("many", i), body, `"idempotency_key":"k-5"`))
	}
	ids, replayed := map[string]bool{}, 0
	for range 20 {
		f := s.next()
		ids[f.MessageID] = true
		if f.Replayed {
			replayed++
		}
	}
	if len(ids) != 1 || ids[""] || replayed != 19 {
		t.Errorf("got %v, of which %d were stored answers", ids, replayed)
	}
	r.mustRestart()
	expectAgain(alice.mustOpen().send(body, key))
	r.wantMessages(4)
}

// The rate of a key holds for its frames and its requests together. Frames wait for it,
// requests are refused. The clock stands still, so no token comes.
func TestFramesAreChargedLikeRequests(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RateLimit, s.api.RateBurst = 1000, 20 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	s := alice.mustOpen()
	alice.get(whoami).want(200)
	for i := range 40 {
		s.write(frameOf(fmt.Sprint(i), letter(bob)))
	}
	for i := range 40 {
		if f := s.next(); f.Type != "sent" || f.Ref != fmt.Sprint(i) {
			t.Fatalf("got %+v", f)
		}
	}
	alice.get(whoami).wantProblem(429, relay.RateLimited)
	bob.get(whoami).want(200)
	r.wantMessages(40)
}
