package http_test

import (
	"encoding/json"
	"testing"
)

// Whatever is in the body of a send, it is answered by a 201 or a refusal
// that explains itself; and a 201 stands for one envelope that every reader sees.
func FuzzSend(f *testing.F) {
	r := mustServe(f)
	alice := r.mustIssue("alice^demo")
	for _, seed := range []string{
		``, `{}`, letter(alice), letter(alice, `"from":"alice^demo"`, `"priority":"high"`, `"ttl_seconds":60`), letter(alice, `"FROM":"x"`),
		letter(alice, in("trip"), `"correlation_id":"\ud83d\ude00"`, `"version":null`), letter(alice, `"expires_at":"2026-12-01T00:00:00.5+01:00"`),
		`{"to":"bob^demo","payload":{"a":[1e400,{"a":"\u0000"}]}}`, `{"payload":[],"to":"alice^demo"}`, "{\"to\":\"\xff\"}", letter(alice, in("conv_x")),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		alice := alice.in(t)
		a := alice.post(messages, string(body))
		switch a.status {
		case 400, 403, 404:
			var p problem
			if a.into(&p); p.Code == "" || p.Detail == "" {
				t.Fatalf("%q: %d %s", body, a.status, a.body)
			}
			return
		case 413:
			if len(body) <= 1<<20 {
				t.Fatalf("%d bytes are too large", len(body))
			}
			return
		case 201:
		default:
			t.Fatalf("%q: %d %s", body, a.status, a.body)
		}
		var s sent
		a.into(&s)
		var fields struct {
			From    *string         `json:"from"`
			To      string          `json:"to"`
			Payload json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal(body, &fields); err != nil { // another reader, which takes the last of two and any case
			t.Fatalf("%q: 201 for what is no JSON: %v", body, err)
		}
		got := alice.record(s.MessageID)
		if got.To != fields.To || fields.From != nil && *fields.From != "" && *fields.From != got.From || got.From != "alice^demo" {
			t.Fatalf("%q: another reader sees another envelope than %+v", body, got)
		}
		if stored := alice.get(messagePath(s.MessageID) + "/payload").want(200); string(stored.body) != string(fields.Payload) {
			t.Fatalf("%q: the payload is %q", body, stored.body)
		}
	})
}
