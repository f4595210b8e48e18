package http_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"relay/http/apitest"
)

// mustListen opens a socket that gets what is sent to m from now on, and more events.
func (m mecha) mustListen(events string) *websocket.Conn {
	m.r.t.Helper()
	q, err := m.prepare("GET", socketPath(m)+"?sync_limit=0&events="+events, "").request(m.r.url)
	if err != nil {
		m.r.t.Fatal(err)
	}
	c, _, err := websocket.Dial(context.Background(), q.URL.String(), &websocket.DialOptions{HTTPHeader: q.Header})
	if err != nil {
		m.r.t.Fatal(err)
	}
	c.SetReadLimit(-1)
	m.r.t.Cleanup(func() { c.CloseNow() })
	return c
}

// A payload that is taken comes back byte for byte by every way that it can be
// had: alone, in the history, and over a socket.
func FuzzPayload(f *testing.F) {
	r := mustServe(f)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	socket := bob.mustListen("")
	for _, seed := range []string{
		`{}`, "{ \t\r\n }", `{"z":1,"a":2,"a":3}`, `{"n":[1,1.0,1e400,-0,123456789012345678901234567890]}`, `{"a":"\u0041\/\u2028\ud83d\ude00"}`, "{\"\u00e9\":\"e\u0301\x7f\"}",
		`{"a":{"b":[[],{},null,true,false,""]}}`, `{"a":"<script>&amp;"}`, `{"payload":{},"to":"x"}`, `[]`, `{"a":01}`, "{\"a\":\"\xff\"}", `{"a":1}}`, `{},"from":"alice^demo"`,
		`{"a":"` + strings.Repeat("0123456789", 1000) + `"}`, strings.Repeat(`{"a":`, 64) + `0` + strings.Repeat(`}`, 64), "\n{\"a\":1}\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		alice, bob := alice.in(t), bob.in(t)
		body := `{"to":"bob^demo","payload":` + text + `}`
		a := alice.post(messages, body)
		if a.status != 201 {
			if a.status != 400 && a.status != 413 && a.status != 404 && a.status != 403 {
				t.Fatalf("%q: %d %s", text, a.status, a.body)
			}
			return
		}
		var s sent
		a.into(&s)
		var fields struct{ Payload json.RawMessage }
		if err := json.Unmarshal([]byte(body), &fields); err != nil {
			t.Fatalf("%q: 201 for what is no JSON: %v", text, err)
		}
		want := string(fields.Payload)
		if got := bob.get(messagePath(s.MessageID) + "/payload").want(200); string(got.body) != want {
			t.Fatalf("%q: the payload is %q", text, got.body)
		}
		if p := bob.history("direction=in&include=payload&limit=1&order=desc"); p.ids()[0] != s.MessageID || string(p.Messages[0].Payload) != want {
			t.Fatalf("%q: the history has %+v", text, p.Messages[0])
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, frame, err := socket.Read(ctx)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if fault := apitest.CheckFrame(frame); fault != "" {
			t.Errorf("%q: the frame is not as it is described: %s", text, fault)
		}
		var m struct {
			ID      string `json:"message_id"`
			Payload string `json:"payload_base64"`
		}
		if err := json.Unmarshal(frame, &m); err != nil || m.ID != s.MessageID {
			t.Fatalf("%q: the socket says %s, %v", text, frame, err)
		}
		if got, err := base64.StdEncoding.DecodeString(m.Payload); err != nil || string(got) != want {
			t.Fatalf("%q: the socket has %q, %v", text, got, err)
		}
	})
}
