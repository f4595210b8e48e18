package cmd_test

import (
	"fmt"
	"strings"
	"testing"
)

// relay why gives the reason for each message that waits for a Mecha, and how the Mecha is;
// relay message trace tells the steps that led there.
func TestWhy(t *testing.T) {
	t.Parallel()
	s := startServer(t, tempDB(t))
	k := issue(t, s.db, "alice^why", "bob^why", "carol^why", "dora^why")
	alice, bob, carol, dora := k[0], k[1], k[2], k[3]
	why := func(what string, says ...string) string {
		t.Helper()
		out := mustRelay(t, "why", what, "--db", s.db)
		for _, part := range says {
			if !strings.Contains(out, part) {
				t.Errorf("relay why %s lacks %q:\n%s", what, part, out)
			}
		}
		return out
	}
	send := func(more string) string {
		t.Helper()
		return parse[record](t, s.ask(alice, "POST", "/api/v1/messages", `{"to":"bob^why","payload":{}`+more+`}`).want(t, 201)).MessageID
	}
	why("bob^why", "bob^why has never made a request; nothing waits for it.\n")
	claimed, deferred, answered := send(""), send(""), send("")
	why(claimed, "bob^why has never made a request")

	claim := s.ask(bob, "POST", "/api/v1/mecha/bob^why/claim", `{"worker":"mill\u00e9"}`).want(t, 200)
	if !strings.Contains(string(claim), claimed) {
		t.Fatalf("%s", claim)
	}
	s.ask(bob, "POST", "/api/v1/messages/"+deferred+"/ack", `{"status":"deferred","retry_after_seconds":600,"client_ts":"2026-01-01T00:00:00Z","detail":"at lunch"}`).want(t, 200)
	reply := parse[record](t, s.ask(bob, "POST", "/api/v1/messages", fmt.Sprintf(`{"to":"alice^why","in_reply_to":%q,"payload":{}}`, answered)).want(t, 201)).MessageID
	late := send(`,"ack_by_seconds":1`)
	eventually(t, patience, "the sender is told", func() bool {
		return strings.Contains(mustRelay(t, "message", "trace", late, "--db", s.db), "; the sender was told")
	})

	why(claimed, `The worker “millé” of bob^why has claimed the message until `)
	why(deferred, "bob^why has deferred the message until ", "(at lunch)")
	why(answered, "bob^why answered at ", reply)
	out := why("bob^why", "made its last request ", "4 messages wait for it, the oldest for ", "(1 held by a worker, 1 deferred, 1 overdue)", claimed, deferred, answered, late, "has claimed the message until", "has deferred the message until", reply)
	if lines := strings.Split(out, "\n"); !strings.HasPrefix(lines[3], claimed) || !strings.HasPrefix(lines[6], late) {
		t.Errorf("not the oldest first:\n%s", out)
	}
	if r := runRelay(t, "why", "bob^why", "--limit", "1", "--db", s.db).wantCode(t, 0, "and 3 more"); strings.Contains(r.out, deferred) {
		t.Errorf("%s", r.out)
	}
	w := parse[struct {
		MechaID                          string `json:"mecha_id"`
		Pending, Held, Deferred, Overdue int
		Messages                         []struct {
			MessageID string `json:"message_id"`
			Verdict   struct{ Code, Text, Since string }
		}
	}](t, []byte(mustRelay(t, "why", "bob^why", "--json", "--db", s.db)))
	if w.Pending != 4 || w.Held != 1 || w.Deferred != 1 || w.Overdue != 1 || len(w.Messages) != 4 || w.Messages[0].Verdict.Code != "claimed" || w.Messages[2].Verdict.Code != "answered" {
		t.Errorf("%+v", w)
	}
	if out := mustRelay(t, "why", answered, "--json", "--db", s.db); !strings.Contains(out, `"verdict":{"code":"answered"`) {
		t.Errorf("%s", out)
	}
	for id, says := range map[string][]string{
		claimed:  {"by the worker millé, until ", "The worker “millé”"},
		deferred: {"deferred until ", "at lunch"},
		answered: {"answered", "by " + reply, "bob^why answered at "},
	} {
		text := mustRelay(t, "message", "trace", id, "--db", s.db)
		for _, part := range says {
			if !strings.Contains(text, part) {
				t.Errorf("the trace lacks %q:\n%s", part, text)
			}
		}
	}
	if out := mustRelay(t, "message", "trace", answered, "--json", "--db", s.db); !strings.Contains(out, `"message_id":"`+reply+`"`) || !strings.Contains(out, `"verdict":{"code":"answered"`) {
		t.Errorf("%s", out)
	}

	// Those who cannot receive.
	s.ask(alice, "POST", "/api/v1/messages", `{"to":"carol^why","payload":{}}`).want(t, 201)
	mustRelay(t, "key", "revoke", carol.KeyID, "--db", s.db)
	why("carol^why", "carol^why has no valid key, so it cannot receive; 1 message waits for it", "nobody can receive the message")
	mustRelay(t, "mecha", "remove", dora.Address, "--db", s.db)
	why("dora^why", "dora^why was removed, so nobody can receive for it; nothing waits for it.")
	runRelay(t, "why", "nobody^why", "--db", s.db).wantCode(t, 1, "is not registered")
	runRelay(t, "why", "no body^why", "--db", s.db).wantCode(t, 2)
	runRelay(t, "why", "msg_00000000000000000000000000", "--db", s.db).wantCode(t, 1, "no message")
	runRelay(t, "why", "bob^why", "--limit", "0", "--db", s.db).wantCode(t, 2, "--limit")
}
