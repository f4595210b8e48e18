package http_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

var (
	messageID      = regexp.MustCompile(`^msg_[0-9a-hjkmnp-tv-z]{26}$`)
	conversationID = regexp.MustCompile(`^conv_[0-9a-hjkmnp-tv-z]{26}$`)
	writtenTime    = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
)

// A client that knows only the interface document sends a message and reads it back.
func TestAMessageOfTheInterfaceDocument(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	payload := `{"text": "hello",  "n": 1.0}`
	a := alice.post(messages, `{"version":"2.5 beta","from":"alice^demo","to":"bob^demo","payload":`+payload+`,
		"message_type":"task\nrequest","priority":"Urgent!"}`)
	a.wantFault(400, relay.InvalidRequest, "message_type")
	a = alice.post(messages, `{"version":"2.5 bêta","from":"alice^demo","to":"bob^demo","payload":`+payload+`,
		"message_type":"task request, v1","priority":"Urgent!","correlation_id":"order \"17\"","later_field":[1]}`).want(201)
	var s sent
	a.into(&s)
	if !messageID.MatchString(s.MessageID) || !conversationID.MatchString(s.ConversationID) || !writtenTime.MatchString(s.CreatedAt) {
		t.Fatalf("201 %s", a.body)
	}
	if s.CreatedAt != "2026-11-20T08:00:00.000Z" || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("201 %s %v", a.body, a.header)
	}

	sum := sha256.Sum256([]byte(payload))
	for _, m := range []mecha{alice, bob} {
		a := m.get(messagePath(s.MessageID)).want(200)
		var fields map[string]json.RawMessage
		a.into(&fields)
		want := []string{"ack", "acknowledged_at", "conversation_id", "correlation_id", "created_at", "delivered_at", "expires_at", "from",
			"message_id", "message_type", "payload_bytes", "payload_sha256", "priority", "signed", "state", "to", "version"}
		if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
			t.Errorf("the record has %v", got)
		}
		var got record
		a.into(&got)
		if fmt.Sprint(got) != fmt.Sprint(record{
			MessageID: s.MessageID, ConversationID: s.ConversationID, CreatedAt: s.CreatedAt, Version: "2.5 bêta", From: "alice^demo",
			To: "bob^demo", MessageType: "task request, v1", Priority: "Urgent!", CorrelationID: `order "17"`, State: "queued",
			PayloadBytes: len(payload), PayloadSHA256: hex.EncodeToString(sum[:]), Signed: true,
		}) {
			t.Errorf("the record is %s", a.body)
		}
	}
	if a := bob.get(messagePath(s.MessageID) + "/payload").want(200); string(a.body) != payload {
		t.Errorf("the payload is %s", a.body)
	}
	if got := bob.record(s.MessageID); got.State != "queued" || got.DeliveredAt != nil {
		t.Errorf("reading changed the state: %+v", got)
	}
}

// A client may write its types and priorities in its own words. It finds them again
// whole, everywhere.
func TestTypesAndPrioritiesOfAnyWords(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	words := []string{"task request", "a,b", "a", "b", "täsk", "仕事/依頼", "\u00e9", "e\u0301", " a ", `"\<&>`, "%2C+;=", "null", "a\u2028b", "*"}
	ids := map[string]string{}
	for _, w := range words {
		quoted, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		ids[w] = alice.mustSend(bob, `"message_type":`+string(quoted), `"priority":`+string(quoted)).MessageID
	}
	var counts struct {
		ByPriority map[string]int `json:"by_priority"`
	}
	bob.get(inboxPath(bob)).want(200).into(&counts)
	for _, w := range words {
		if got := bob.record(ids[w]); got.MessageType != w || got.Priority != w {
			t.Errorf("%q became the type %q and the priority %q", w, got.MessageType, got.Priority)
		}
		if counts.ByPriority[w] != 1 {
			t.Errorf("of priority %q there are %d", w, counts.ByPriority[w])
		}
		for _, name := range []string{"message_type", "priority"} {
			if got := bob.history(url.Values{name: {w}}.Encode()).ids(); !slices.Equal(got, []string{ids[w]}) {
				t.Errorf("%s=%q finds %q", name, w, got)
			}
		}
	}
	for _, query := range []string{"message_type=a%2Cb%2C", "message_type=a,task%20request", "message_type=A", "priority=%00", "message_type=" + strings.Repeat("x", 5000)} {
		if got := bob.history(query).ids(); len(got) > 0 {
			t.Errorf("%s finds %q", query, got)
		}
	}
}

func TestWhatMayBeLeftOut(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	optional := []string{"from", "version", "message_type", "priority", "conversation_id", "correlation_id", "expires_at", "ttl_seconds"}
	for _, nothing := range []string{``, `null`, `""`} {
		var fields []string
		for _, name := range optional {
			if nothing != "" {
				fields = append(fields, `"`+name+`": `+nothing)
			}
		}
		got := alice.record(alice.mustSend(alice, fields...).MessageID)
		if got.From != "alice^demo" || got.Version != "1.0" || got.MessageType != "message" || got.Priority != "normal" ||
			!conversationID.MatchString(got.ConversationID) || got.CorrelationID != "" || got.ExpiresAt != nil {
			t.Errorf("with %s for every optional field: %+v", nothing, got)
		}
	}
	alice.post(messages, letter(alice, `"ttl_seconds":null`, `"expires_at":"2026-11-20T09:00:00Z"`)).want(201)
	alice.post(messages, letter(alice, `"ttl_seconds":60`, `"expires_at":""`)).want(201)
}

func TestFieldRules(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	str := func(name, value string) string { return `"` + name + `":"` + value + `"` }
	x := strings.Repeat
	for _, good := range []string{
		str("version", "1"), str("version", x("v", 32)), str("version", x("é", 32)), str("version", `a b\"\u0000\n`),
		str("message_type", "A.b_c:d/e-9"), str("message_type", x("t", 64)), str("message_type", x("😀", 64)), str("message_type", " täsk, 仕事; <b>&'\\\" "),
		str("priority", "low"), str("priority", "P-0.a_b"), str("priority", x("p", 32)), str("priority", x("𝄞", 32)), str("priority", "very high, a/b"),
		str("conversation_id", "label"), str("conversation_id", x("c", 128)), str("conversation_id", "A.b_c:d~e-9"), str("conversation_id", "conversation"),
		str("correlation_id", x("c", 256)), str("correlation_id", `\u0000 \ud83d\ude00 é`),
		str("from", "alice^demo"),
		str("expires_at", "2026-11-20T08:00:00.001Z"), str("expires_at", "9999-12-31T23:59:59Z"), str("expires_at", "2026-11-20t10:00:00+01:00"),
		`"ttl_seconds":1`, `"ttl_seconds":3153600000`,
		`"unknown":{"a":[1]}`, `"Unknown":1,"unknown":2`, `"":null`, `"type":5`, `"message_id":5`,
	} {
		alice.post(messages, letter(alice, good)).want(201)
	}
	n := r.countMessages()
	for _, row := range []struct {
		fields, field string
		code          relay.Code
	}{
		{str("version", x("v", 33)), "version", relay.InvalidRequest},
		{str("version", x("é", 33)), "version", relay.InvalidRequest},
		{`"version":1.0`, "version", relay.InvalidRequest},
		{str("message_type", x("t", 65)), "message_type", relay.InvalidRequest},
		{str("message_type", x("é", 65)), "message_type", relay.InvalidRequest},
		{str("message_type", `a\u0000b`), "message_type", relay.InvalidRequest},
		{str("message_type", `a\u001f`), "message_type", relay.InvalidRequest},
		{str("message_type", `\u007f`), "message_type", relay.InvalidRequest},
		{str("message_type", `a\u0080`), "message_type", relay.InvalidRequest},
		{str("message_type", "\u009fa"), "message_type", relay.InvalidRequest},
		{`"message_type":{}`, "message_type", relay.InvalidRequest},
		{str("priority", x("p", 33)), "priority", relay.InvalidRequest},
		{str("priority", x("é", 33)), "priority", relay.InvalidRequest},
		{str("priority", `high\t`), "priority", relay.InvalidRequest},
		{str("priority", "\u009b31m"), "priority", relay.InvalidRequest},
		{`"priority":1`, "priority", relay.InvalidRequest},
		{str("conversation_id", x("c", 129)), "conversation_id", relay.InvalidRequest},
		{str("conversation_id", "a b"), "conversation_id", relay.InvalidRequest},
		{str("conversation_id", "a/b"), "conversation_id", relay.InvalidRequest},
		{`"conversation_id":true`, "conversation_id", relay.InvalidRequest},
		{str("correlation_id", x("c", 257)), "correlation_id", relay.InvalidRequest},
		{str("correlation_id", x("é", 128)+"x"), "correlation_id", relay.InvalidRequest},
		{`"correlation_id":17`, "correlation_id", relay.InvalidRequest},
		{`"from":["alice^demo"]`, "from", relay.InvalidRequest},
		{str("from", "alice"), "from", relay.InvalidAddress},
		{str("expires_at", "tomorrow"), "expires_at", relay.InvalidTime},
		{str("expires_at", "2026-11-20T08:00:00Z"), "expires_at", relay.InvalidTime},
		{str("expires_at", "2026-11-20T07:59:59.999Z"), "expires_at", relay.InvalidTime},
		{str("expires_at", "0001-01-01T00:00:00Z"), "expires_at", relay.InvalidTime},
		{`"expires_at":1795161660`, "expires_at", relay.InvalidRequest},
		{`"ttl_seconds":0`, "ttl_seconds", relay.InvalidRequest},
		{`"ttl_seconds":-1`, "ttl_seconds", relay.InvalidRequest},
		{`"ttl_seconds":1.5`, "ttl_seconds", relay.InvalidRequest},
		{`"ttl_seconds":"60"`, "ttl_seconds", relay.InvalidRequest},
		{`"ttl_seconds":99999999999999999999999`, "ttl_seconds", relay.InvalidRequest},
		{`"ttl_seconds":60,"expires_at":"2026-11-20T09:00:00Z"`, "ttl_seconds", relay.InvalidRequest},
	} {
		alice.post(messages, letter(alice, row.fields)).wantFault(400, row.code, row.field)
	}
	for body, row := range map[string]struct {
		field string
		code  relay.Code
	}{
		`{"payload":{}}`:                                     {"to", relay.InvalidRequest},
		`{"to":"","payload":{}}`:                             {"to", relay.InvalidRequest},
		`{"to":null,"payload":{}}`:                           {"to", relay.InvalidRequest},
		`{"to":7,"payload":{}}`:                              {"to", relay.InvalidRequest},
		`{"to":"alice","payload":{}}`:                        {"to", relay.InvalidAddress},
		`{"to":"^demo","payload":{}}`:                        {"to", relay.InvalidAddress},
		`{"to":"alice^","payload":{}}`:                       {"to", relay.InvalidAddress},
		`{"to":"alice^demo^x","payload":{}}`:                 {"to", relay.InvalidAddress},
		`{"to":" alice^demo","payload":{}}`:                  {"to", relay.InvalidAddress},
		`{"to":".alice^demo","payload":{}}`:                  {"to", relay.InvalidAddress},
		`{"to":"älice^demo","payload":{}}`:                   {"to", relay.InvalidAddress},
		`{"to":"` + x("a", 65) + `^demo","payload":{}}`:      {"to", relay.InvalidAddress},
		`{"to":"alice^demo"}`:                                {"payload", relay.InvalidRequest},
		`{"to":"alice^demo","payload":null}`:                 {"payload", relay.InvalidRequest},
		`{"to":"alice^demo","payload":[]}`:                   {"payload", relay.InvalidRequest},
		`{"to":"alice^demo","payload":"{}"}`:                 {"payload", relay.InvalidRequest},
		`{"to":"alice^demo","payload":1}`:                    {"payload", relay.InvalidRequest},
		`{"to":"alice^demo","payload":false,"priority":" "}`: {"payload", relay.InvalidRequest},
	} {
		alice.post(messages, body).wantFault(400, row.code, row.field)
	}
	r.wantMessages(n)
}

func TestSenderAndRecipient(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	for _, name := range []relay.Address{"planner^acme", "planer^acme", "planner2^acme", "planners^acme", "zebra^acme"} {
		r.mustIssue(name)
	}
	alice.post(messages, letter(bob, `"from":"bob^demo"`)).wantProblem(403, relay.SenderMismatch)
	alice.post(messages, letter(bob, `"from":"nobody^demo"`)).wantProblem(403, relay.SenderMismatch)
	alice.post(messages, letter(bob, `"from":"Alice^demo"`)).wantProblem(403, relay.SenderMismatch)
	for to, want := range map[string][]string{
		"bbo^demo":      {"bob^demo"},
		"Bob^demo":      {"bob^demo"}, // compared exactly
		"plannr^acme":   {"planer^acme", "planner^acme", "planners^acme"},
		"xylophone^far": {},
	} {
		a := alice.post(messages, `{"to":"`+to+`","payload":{}}`)
		p := a.wantProblem(404, relay.RecipientNotFound)
		if p.DidYouMean == nil || len(p.DidYouMean) > 3 || to != "plannr^acme" && !slices.Equal(p.DidYouMean, want) {
			t.Errorf("%s: did you mean %v? want %v", to, p.DidYouMean, want)
		}
		if len(want) > 0 && !strings.Contains(p.Detail, p.DidYouMean[0]) {
			t.Errorf("the sentence does not say it: %s", p.Detail)
		}
	}
	r.wantMessages(0)
	alice.mustSend(alice) // to oneself is fine
}

func TestWhoMayReadAMessage(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
	id := alice.mustSend(bob).MessageID
	alice.get(messagePath(id)).want(200)
	bob.get(messagePath(id)).want(200)
	carol.get(messagePath(id)).wantProblem(403, relay.NotAParty)
	bob.get(messagePath(id) + "/payload").want(200)
	alice.get(messagePath(id)+"/payload").wantProblem(403, relay.RecipientOnly)
	carol.get(messagePath(id)+"/payload").wantProblem(403, relay.RecipientOnly)
	for _, m := range []mecha{alice, carol} {
		m.post(messagePath(id)+"/ack", ackBody("completed")).wantProblem(403, relay.RecipientOnly)
		m.post(messagePath(id)+"/deliver", "").wantProblem(403, relay.RecipientOnly)
	}
	foreign := mustServe(t)
	dave := foreign.mustIssue("dave^demo")
	for _, none := range []string{"msg_x", "x", id + "0", strings.ToUpper(id), "%00", dave.mustSend(dave).MessageID, id[:len(id)-1] + "%20"} {
		bob.get(messagePath(none)).wantProblem(404, relay.MessageNotFound)
		bob.get(messagePath(none)+"/payload").wantProblem(404, relay.MessageNotFound)
		bob.post(messagePath(none)+"/ack", ackBody("completed")).wantProblem(404, relay.MessageNotFound)
		bob.post(messagePath(none)+"/deliver", "").wantProblem(404, relay.MessageNotFound)
	}
	if got := alice.record(id); got.State != "queued" {
		t.Errorf("a refused request changed the state to %s", got.State)
	}
	head := bob.do("HEAD", messagePath(id)+"/payload", "")
	if head.status != 200 || len(head.body) != 0 || head.header.Get("Content-Length") != "2" {
		t.Errorf("HEAD: %d %s %v", head.status, head.body, head.header)
	}
}

func TestMessagesSurviveARestart(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*testRelay){"restart": (*testRelay).mustRestart, "kill": (*testRelay).mustCrash} {
		t.Run(name, func(t *testing.T) {
			r := mustServe(t)
			alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
			s := alice.mustSend(bob, `"conversation_id":"plan","correlation_id":"c","priority":"odd","ttl_seconds":3600`)
			bob.mustAck(s.MessageID, "seen")
			before := bob.get(messagePath(s.MessageID)).want(200)
			again(r)
			if after := bob.get(messagePath(s.MessageID)).want(200); string(after.body) != string(before.body) {
				t.Errorf("before %s, after %s", before.body, after.body)
			}
			r.clock.advance(-time.Minute) // order does not depend on the clock
			if next := alice.mustSend(bob); next.MessageID <= s.MessageID || next.CreatedAt < s.CreatedAt {
				t.Errorf("%+v comes after %+v", next, s)
			}
		})
	}
}
