package http_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"relay/db"
	"relay/db/relay"
	"relay/db/scratch/wire"
)

// crewSent is the answer to a message to a crew.
type crewSent struct {
	sent
	MessageIDs []string `json:"message_ids"`
}

// toCrew is the body of a message to a crew; fields is more members.
func toCrew(crew string, fields ...string) string {
	return `{` + strings.Join(append([]string{`"to":"*^` + crew + `"`, `"payload":{"n": 1}`}, fields...), ",") + `}`
}

func (m mecha) mustSendAll(crew string, fields ...string) (s crewSent) {
	m.r.t.Helper()
	a := m.post(messages, toCrew(crew, fields...)).want(201).wantField("recipient", "null")
	if a.into(&s); len(s.MessageIDs) == 0 || s.MessageIDs[0] != s.MessageID {
		m.r.t.Errorf("%s", a.body)
	}
	return s
}

// recipients returns the addresses to which messages went, in their order.
func (m mecha) recipients(s crewSent) (all []string) {
	m.r.t.Helper()
	for _, id := range s.MessageIDs {
		got := m.record(id)
		if got.ConversationID != s.ConversationID || got.From != string(m.Mecha.Address) {
			m.r.t.Errorf("%+v", got)
		}
		all = append(all, got.To)
	}
	return all
}

func (m mecha) mustProfile(body string) {
	m.r.t.Helper()
	m.do("PUT", profilePath(m.Mecha.Address), body).want(200)
}

// mustSetBeside sets a profile as a command does, in a store of its own.
func (r *testRelay) mustSetBeside(a relay.Address, body string) {
	r.t.Helper()
	p, err := relay.ReadProfile([]byte(body))
	if err != nil {
		r.t.Fatal(err)
	}
	d, err := db.Open(db.Options{Path: r.settings.db.Path, Schema: r.settings.db.Schema})
	if err == nil {
		err = errors.Join(d.PutProfile(&relay.PutProfile{At: r.clock.Now(), Address: a, Profile: p.Stored()}), d.Close())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func mayBroadcast(i *relay.IssueKey) { i.Broadcast = true }

func broadcasts(most int) func(*settings) {
	return func(s *settings) { s.db.MaxBroadcast = most }
}

func (r *testRelay) mustWant(got []string, want ...string) {
	r.t.Helper()
	if !slices.Equal(got, want) {
		r.t.Errorf("got %v, want %v", got, want)
	}
}

func TestAMessageToACrew(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, broadcasts(3))
		carol, alice, bob := r.mustIssue("carol^acme"), r.mustIssue("alice^acme"), r.mustIssue("bob^acme")
		stranger, herald := r.mustIssue("dave^other"), r.mustIssue("herald^other", mayBroadcast)
		bob.mustProfile(`{"visibility":"unlisted"}`)
		socket := carol.mustDial("sync_limit=0")
		s := alice.mustSendAll("acme", `"correlation_id":"c"`, `"ttl_seconds":60`, `"ack_by_seconds":30`)
		r.mustWant(alice.recipients(s), "carol^acme", "bob^acme")
		if w := r.mustReadWish(socket); w.MessageID != s.MessageIDs[0] || w.AckBy == nil {
			t.Errorf("the frame is %+v", w)
		}
		for i, m := range []mecha{carol, bob} {
			r.mustWant(m.history("conversation_id="+s.ConversationID).ids(), s.MessageIDs[i]) // each sees its own part
			m.get(messagePath(s.MessageIDs[1-i])).wantProblem(403, relay.NotAParty)
			if body := m.get(messagePath(s.MessageIDs[i]) + "/payload").want(200).body; string(body) != `{"n": 1}` {
				t.Errorf("the payload is %s", body)
			}
			if got := m.record(s.MessageIDs[i]); got.CorrelationID != "c" || got.ExpiresAt == nil {
				t.Errorf("%+v", got)
			}
			answer := m.mustSend(alice, `"in_reply_to":"`+s.MessageIDs[i]+`"`)
			if answer.ConversationID != s.ConversationID {
				t.Errorf("the answer is in %s", answer.ConversationID)
			}
		}
		if n := len(alice.history("conversation_id=" + s.ConversationID).ids()); n != 4 {
			t.Errorf("the sender sees %d messages", n)
		}
		carol.mustAck(s.MessageIDs[0], "completed")
		if a, b := alice.record(s.MessageIDs[0]).State, alice.record(s.MessageIDs[1]).State; a != "acknowledged" || b != "queued" {
			t.Errorf("the states are %s and %s", a, b)
		}

		stranger.post(messages, toCrew("acme")).wantProblem(403, relay.BroadcastNotAllowed)
		stranger.post(messages, toCrew("nobody")).wantProblem(403, relay.BroadcastNotAllowed) // does not learn which crews there are
		herald.post(messages, toCrew("nobody")).wantProblem(404, relay.RecipientNotFound)
		r.mustWant(herald.recipients(herald.mustSendAll("acme")), "carol^acme", "alice^acme", "bob^acme")
		r.mustWant(herald.recipients(herald.mustSendAll("other")), "dave^other")
		r.mustIssue("alone^here").post(messages, toCrew("here")).wantProblem(404, relay.RecipientNotFound)

		for _, crew := range []string{"", "-acme", "a^b", "acme ", "*"} {
			alice.post(messages, toCrew(crew)).wantProblem(400, relay.InvalidAddress)
		}
		alice.get(profilePath("*^acme")).wantProblem(400, relay.InvalidAddress)

		r.mustIssue("erin^acme")
		if p := herald.post(messages, toCrew("acme")).wantProblem(422, relay.TooManyRecipients); !strings.Contains(p.Detail, "has 4 Mechas") || !strings.Contains(p.Detail, "at most 3") {
			t.Error(p.Detail)
		}
		if len(alice.recipients(alice.mustSendAll("acme"))) != 3 { // without the sender there are no more
			t.Error("not to all")
		}
		if err := r.db.RemoveMecha(&relay.RemoveMecha{At: r.clock.Now(), Address: "bob^acme"}); err != nil {
			t.Fatal(err)
		}
		r.mustWant(herald.recipients(herald.mustSendAll("acme")), "carol^acme", "alice^acme", "erin^acme")
		r.settings.db.MaxBroadcast = 0
		r.mustRestart()
		herald.post(messages, toCrew("acme")).wantProblem(403, relay.BroadcastNotAllowed)
	})
}

// The key has the right, and so has its successor, over a restart.
func TestAKeyThatMayBroadcast(t *testing.T) {
	t.Parallel()
	r := mustServe(t, broadcasts(100))
	r.mustIssue("a^crew")
	plain, herald := r.mustIssue("herald^other"), r.mustIssue("herald^other", mayBroadcast)
	next := r.mustIssue("", func(i *relay.IssueKey) { i.Replaces, i.Overlap = herald.ID, time.Hour })
	r.mustRestart()
	for _, m := range []mecha{herald, next} {
		m.mustSendAll("crew")
	}
	plain.post(messages, toCrew("crew")).wantProblem(403, relay.BroadcastNotAllowed)
}

func TestAMessageToACrewIsForAllOrNone(t *testing.T) {
	t.Parallel()
	r := mustServe(t, broadcasts(100), func(s *settings) { s.db.MaxPending = 2 })
	alice, bob, carol := r.mustIssue("alice^acme"), r.mustIssue("bob^acme"), r.mustIssue("carol^acme")
	full := carol.mustSend(carol)
	carol.mustSend(carol)
	if p := alice.post(messages, toCrew("acme")).wantProblem(429, relay.MailboxFull); !strings.Contains(p.Detail, "carol^acme") {
		t.Error(p.Detail)
	}
	if n := len(bob.history("").ids()); n != 0 {
		t.Errorf("bob got %d messages", n)
	}
	carol.mustAck(full.MessageID, "completed")
	alice.mustSendAll("acme")
	big := `"payload":{"text":"` + strings.Repeat("x", 900_000) + `"}`
	for i := range 8 {
		r.mustIssue(relay.Address(fmt.Sprintf("m%d^acme", i)))
	}
	body := `{"to":"*^acme",` + big + `}`
	alice.post(messages, body).wantProblem(413, relay.PayloadTooLarge)
}

func TestARetryOfAMessageToACrew(t *testing.T) {
	t.Parallel()
	r := mustServe(t, broadcasts(100))
	alice, bob := r.mustIssue("alice^acme"), r.mustIssue("bob^acme")
	r.mustIssue("carol^acme")
	once := alice.prepare("POST", messages, toCrew("acme", `"ttl_seconds":60`), idempotent("k"))
	first := r.mustDo(once).want(201)
	var s crewSent
	first.into(&s)
	r.mustIssue("dave^acme")
	if err := r.db.RemoveMecha(&relay.RemoveMecha{At: r.clock.Now(), Address: "carol^acme"}); err != nil {
		t.Fatal(err)
	}
	r.mustCrash()
	for range 2 {
		if a := r.mustDo(once); string(a.want(201).body) != string(first.body) || a.header.Get("Idempotent-Replayed") != "true" { // the very same request
			t.Errorf("%s, want %s", a.body, first.body)
		}
		if a := alice.sendOnce("k", toCrew("acme", `"ttl_seconds":60`)).want(201); string(a.body) != string(first.body) {
			t.Errorf("%s, want %s", a.body, first.body)
		}
		alice.sendOnce("k", toCrew("acme")).wantProblem(422, relay.IdempotencyKeyReused)
		r.mustRestart()
	}
	r.wantMessages(2)
	unkeyed := alice.prepare("POST", messages, toCrew("acme"))
	r.mustDo(unkeyed).want(201)
	r.mustCrash()
	r.mustDo(unkeyed).wantProblem(401, relay.NonceReused)
	if n := len(bob.history("").ids()); n != 2 {
		t.Errorf("bob has %d messages", n)
	}
}

func TestAConversationCountsEachMessageToACrew(t *testing.T) {
	t.Parallel()
	r := mustServe(t, broadcasts(100))
	alice, bob := r.mustIssue("alice^acme"), r.mustIssue("bob^acme")
	r.mustIssue("carol^acme")
	alice.post(messages, toCrew("acme", `"max_messages":1`)).wantProblem(429, relay.ConversationFull)
	s := alice.mustSendAll("acme", `"max_messages":5`)
	conv := in(s.ConversationID)
	r.mustCrash()
	founder := alice.mustDial("sync_limit=0&events=receipts")
	alice.mustSendAll("acme", conv)
	alice.post(messages, toCrew("acme", conv)).wantProblem(429, relay.ConversationFull) // there is room for one, not for two
	answer := bob.mustSend(alice, conv)
	if w := r.mustReadWish(founder); w.MessageID != answer.MessageID {
		t.Errorf("before the conversation was full, the founder is told %+v", w)
	}
	alice.post(messages, toCrew("acme", conv)).wantProblem(429, relay.ConversationFull) // not earlier: a receipt may overtake a message
	if w := r.mustReadWish(founder); w.MessageID != s.MessageID || w.Status != "conversation_full" || !w.Notice {
		t.Errorf("the founder is told %+v", w)
	}
}

// Each message counts for the rate of the key.
func TestAMessageToACrewIsCharged(t *testing.T) {
	t.Parallel()
	r := mustServe(t, broadcasts(100), func(s *settings) { s.api.RateLimit, s.api.RateBurst = 10, 20 })
	alice := r.mustIssue("alice^acme")
	for i := range 50 {
		r.mustIssue(relay.Address(fmt.Sprintf("m%d^acme", i)))
	}
	alice.mustSendAll("acme")
	if a := alice.get(whoami); a.wantProblem(429, relay.RateLimited).Code != "" && a.header.Get("Retry-After") != "4" { // 31 too many
		t.Errorf("Retry-After %s", a.header.Get("Retry-After"))
	}
	r.clock.advance(3 * time.Second)
	alice.get(whoami).wantProblem(429, relay.RateLimited)
	r.clock.advance(time.Second)
	alice.get(whoami).want(200)
}

func TestOnlyThoseWhomAMechaAcceptsMayWrite(t *testing.T) {
	t.Parallel()
	r := mustServe(t, broadcasts(100))
	alice, bob := r.mustIssue("alice^acme"), r.mustIssue("bob^demo")
	carol, dave := r.mustIssue("carol^demo"), r.mustIssue("dave^other")
	asked := alice.mustSend(dave)
	bob.mustSend(alice)
	alice.mustProfile(`{"accept_from":["*^acme","bob^demo"]}`)
	alice.get(profilePath("alice^acme")).wantField("accept_from", `["*^acme","bob^demo"]`)
	for range 2 {
		bob.mustSend(alice)
		r.mustIssue("erin^acme").mustSend(alice)
		alice.mustSend(alice)
		carol.post(messages, letter(alice)).wantProblem(403, relay.NotAccepted)
		dave.post(messages, letter(alice)).wantProblem(403, relay.NotAccepted)
		dave.post(messages, letter(alice, in(asked.ConversationID))).wantProblem(403, relay.NotAccepted)
		answer := dave.mustSend(alice, `"in_reply_to":"`+asked.MessageID+`"`)
		dave.post(messages, letter(alice, `"in_reply_to":"`+answer.MessageID+`"`)).wantProblem(403, relay.NotAccepted) // its own message
		r.mustCrash()
	}
	alice.mustProfile(`{"accept_from":[]}`)
	alice.get(profilePath("alice^acme")).wantField("accept_from", `[]`)
	bob.post(messages, letter(alice)).wantProblem(403, relay.NotAccepted)
	alice.mustSend(alice)
	for _, open := range []string{`{}`, `{"accept_from":null}`} {
		alice.mustProfile(`{"accept_from":["bob^demo"]}`)
		carol.post(messages, letter(alice)).wantProblem(403, relay.NotAccepted)
		alice.mustProfile(open)
		carol.mustSend(alice)
	}
	alice.mustProfile(`{"accept_from":["bob^demo"]}`)
	if err := r.db.RemoveMecha(&relay.RemoveMecha{At: r.clock.Now(), Address: "alice^acme"}); err != nil {
		t.Fatal(err)
	}
	carol.post(messages, letter(alice)).wantProblem(404, relay.RecipientNotFound)
	alice = r.mustIssue("alice^acme") // without its profile
	carol.mustSend(alice)
	r.mustSetBeside("alice^acme", `{"accept_from":["bob^demo"]}`)
	carol.post(messages, letter(alice)).wantProblem(403, relay.NotAccepted)
	most := strings.Repeat(`"bob^demo",`, 99)
	alice.mustProfile(`{"accept_from":[` + most + `"*^demo"]}`)
	carol.mustSend(alice)
	for _, wrong := range []string{`"bob^demo"`, `["bob"]`, `["*"]`, `["*^*"]`, `["bob^*"]`, `[""]`, `[null]`, `[1]`, `{}`, `["a b^demo"]`, `[` + most + `"a^b","c^d"]`} {
		alice.do("PUT", profilePath("alice^acme"), `{"accept_from":`+wrong+`}`).wantFault(400, relay.InvalidRequest, "accept_from")
	}
	carol.mustSend(alice)
}

// Mechas that do not accept the sender are left out of a message to their crew.
func TestACrewWhoseMechasAcceptOnlySome(t *testing.T) {
	t.Parallel()
	r := mustServe(t, broadcasts(100))
	alice, bob, carol := r.mustIssue("alice^acme"), r.mustIssue("bob^acme"), r.mustIssue("carol^acme")
	bob.mustProfile(`{"accept_from":["carol^acme"]}`)
	r.mustWant(alice.recipients(alice.mustSendAll("acme")), "carol^acme")
	r.mustWant(carol.recipients(carol.mustSendAll("acme")), "alice^acme", "bob^acme")
	question := bob.mustSendAll("acme")
	r.mustWant(alice.recipients(alice.mustSendAll("acme", `"in_reply_to":"`+question.MessageIDs[0]+`"`)), "bob^acme", "carol^acme")
	carol.mustProfile(`{"accept_from":[]}`)
	alice.post(messages, toCrew("acme")).wantProblem(403, relay.NotAccepted)
}

func TestOneHundredSocketsGetAMessageToTheirCrew(t *testing.T) {
	t.Parallel()
	r := mustServe(t, broadcasts(100))
	alice := r.mustIssue("alice^acme")
	var sockets []*websocket.Conn
	for i := range 100 {
		sockets = append(sockets, r.mustIssue(relay.Address(fmt.Sprintf("m%d^acme", i))).mustDial("sync_limit=0"))
	}
	var all []crewSent
	for range 5 {
		all = append(all, alice.mustSendAll("acme"))
	}
	for i, c := range sockets {
		for _, s := range all {
			bounded, cancel := context.WithTimeout(t.Context(), patience)
			var w wish
			if err := wsjson.Read(bounded, c, &w); err != nil || w.MessageID != s.MessageIDs[i] {
				t.Fatalf("socket %d: %+v, %v; want %s", i, w, err, s.MessageIDs[i])
			}
			cancel()
		}
	}
}
