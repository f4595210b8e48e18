package http_test

import (
	"context"
	"fmt"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"relay/db/relay"
	"relay/db/scratch/wire"
)

// wish is what a record or a frame says of what its sender has asked for.
type wish struct {
	MessageID      string  `json:"message_id"`
	ConversationID string  `json:"conversation_id"`
	State          string  `json:"state"`
	Status         string  `json:"status"`
	Detail         string  `json:"detail"`
	Notice         bool    `json:"notice"`
	Attempt        int     `json:"attempt"`
	InReplyTo      *string `json:"in_reply_to"`
	AckBy          *string `json:"ack_by"`
	Overdue        *bool   `json:"overdue"`
	TraceParent    string  `json:"traceparent"`
	TraceState     string  `json:"tracestate"`
}

func (m mecha) wish(id string) (w wish) {
	m.r.t.Helper()
	m.get(messagePath(id)).want(200).into(&w)
	return w
}

// mustDial opens a socket with the query of its own.
func (m mecha) mustDial(query string) *websocket.Conn {
	m.r.t.Helper()
	q, err := m.prepare("GET", socketPath(m), "").request(m.r.url)
	if err != nil {
		m.r.t.Fatal(err)
	}
	c, _, err := websocket.Dial(context.Background(), "ws"+strings.TrimPrefix(m.r.url, "http")+socketPath(m)+"?"+query, &websocket.DialOptions{HTTPHeader: q.Header, HTTPClient: &nethttp.Client{Transport: m.r.client.Transport}})
	if err != nil {
		m.r.t.Fatal(err)
	}
	m.r.t.Cleanup(func() { c.CloseNow() })
	return c
}

func (r *testRelay) mustReadWish(c *websocket.Conn) (w wish) {
	r.t.Helper()
	bounded, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := wsjson.Read(bounded, c, &w); err != nil {
		r.t.Fatal(err)
	}
	return w
}

func TestAnAnswerJoinsTheConversationOfItsQuestion(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
	socket := alice.mustDial("sync_limit=0")
	for _, fields := range [][]string{nil, {in("their-own")}} {
		question := alice.mustSend(bob, fields...)
		reply := `"in_reply_to":"` + question.MessageID + `"`
		for _, name := range []string{"", `,"conversation_id":"` + question.ConversationID + `"`, `,"conversation_id":""`} {
			answer := bob.mustSend(alice, reply+name)
			if answer.ConversationID != question.ConversationID {
				t.Errorf("%q: the answer is in %s, the question in %s", name, answer.ConversationID, question.ConversationID)
			}
			for of, w := range map[string]wish{"record": alice.wish(answer.MessageID), "frame": r.mustReadWish(socket)} {
				if w.MessageID != answer.MessageID || w.InReplyTo == nil || *w.InReplyTo != question.MessageID || w.ConversationID != question.ConversationID {
					t.Errorf("%q: the %s is %+v", name, of, w)
				}
			}
		}
		if w := bob.wish(question.MessageID); w.InReplyTo != nil || w.AckBy != nil || w.Overdue != nil {
			t.Errorf("the question has wishes: %+v", w)
		}
		alice.mustSend(bob, reply) // a sender may continue from its own message

		bob.post(messages, letter(alice, reply, in("another"))).wantProblem(400, relay.InvalidRequest)
		carol.post(messages, letter(alice, reply)).wantProblem(403, relay.NotAParty)
	}
	never := `"in_reply_to":"msg_00000000000000000000000000"`
	bob.post(messages, letter(alice, never)).wantProblem(404, relay.MessageNotFound)
	bob.post(messages, letter(alice, `"in_reply_to":"no such"`)).wantProblem(404, relay.MessageNotFound)
	bob.post(messages, letter(alice, `"in_reply_to":7`)).wantProblem(400, relay.InvalidRequest)
}

func TestAnUnansweredMessageBecomesOverdue(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		socket := alice.mustDial("sync_limit=0&events=receipts")
		late := alice.mustSend(bob, `"ack_by_seconds":60`)
		progress := alice.mustSend(bob, `"ack_by_seconds":60`)
		inTime := alice.mustSend(bob, `"ack_by_seconds":60`)
		gone := alice.mustSend(bob, `"ack_by_seconds":60`, `"ttl_seconds":30`)
		far := alice.mustSend(bob, `"ack_by_seconds":2592000`)
		bob.mustAck(progress.MessageID, "processing")
		bob.mustAck(inTime.MessageID, "completed")
		for range 2 {
			r.mustReadWish(socket)
		}
		if w := alice.wish(late.MessageID); w.AckBy == nil || *w.AckBy != "2026-11-20T08:01:00.000Z" || w.Overdue == nil || *w.Overdue {
			t.Fatalf("%+v", w)
		}
		r.mustCrash()
		socket = alice.mustDial("sync_limit=0&events=receipts")
		r.clock.advance(61 * time.Second)
		got := map[string]wish{}
		for range 3 {
			w := r.mustReadWish(socket)
			got[w.MessageID] = w
		}
		for id, want := range map[string]wish{
			late.MessageID:     {State: "queued", Status: "overdue", Notice: true},
			progress.MessageID: {State: "delivered", Status: "overdue", Notice: true},
			gone.MessageID:     {State: "expired"},
		} {
			want.MessageID = id
			if got[id] != want {
				t.Errorf("got %+v, want %+v", got[id], want)
			}
		}
		for id, overdue := range map[string]bool{late.MessageID: true, progress.MessageID: true, inTime.MessageID: false, gone.MessageID: false, far.MessageID: false} {
			if w := alice.wish(id); w.Overdue == nil || *w.Overdue != overdue {
				t.Errorf("%+v, want overdue: %v", w, overdue)
			}
		}
		if ids := alice.history("state=overdue").ids(); len(ids) != 2 || ids[0] != late.MessageID || ids[1] != progress.MessageID {
			t.Errorf("overdue are %v", ids)
		}
		bob.mustAck(late.MessageID, "failed")
		if ids := bob.history("state=dead").ids(); len(ids) != 2 || ids[0] != late.MessageID || ids[1] != gone.MessageID {
			t.Errorf("dead are %v", ids)
		}
		if ids := bob.history("state=overdue").ids(); len(ids) != 1 {
			t.Errorf("overdue are %v", ids)
		}
		r.mustRestart() // tells nobody again
		socket = alice.mustDial("sync_limit=0&events=receipts")
		bob.mustAck(progress.MessageID, "completed")
		if w := r.mustReadWish(socket); w.Status != "completed" || w.Notice {
			t.Errorf("after a restart: %+v", w)
		}
		for _, seconds := range []string{"0", "-1", "1.5", "2592001", `"60"`, "true"} {
			alice.post(messages, letter(bob, `"ack_by_seconds":`+seconds)).wantProblem(400, relay.InvalidRequest)
		}
		alice.mustSend(bob, `"ack_by_seconds":null`)
	})
}

func TestAConversationHoldsNoMoreThanItMay(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		founders := alice.mustDial("sync_limit=0&events=receipts")
		for _, label := range []string{"", `,"conversation_id":"my-own"`} {
			first := alice.mustSend(bob, `"max_messages":3`+label)
			conv := in(first.ConversationID)
			bob.mustSend(alice, conv)
			r.mustReadWish(founders)
			alice.mustSend(bob, conv, `"max_messages":3`) // the same limit again
			for n := range 3 {
				a := bob.post(messages, letter(alice, conv))
				if a.wantProblem(429, relay.ConversationFull); a.header.Get("Retry-After") != "" {
					t.Error("a full conversation is said to have room later")
				}
				if n == 0 {
					if w := r.mustReadWish(founders); w.MessageID != first.MessageID || w.Status != "conversation_full" || !w.Notice || w.State != "queued" {
						t.Errorf("the founder is told %+v", w)
					}
				}
			}
			r.mustCrash()
			founders = alice.mustDial("sync_limit=0&events=receipts")
			bob.post(messages, letter(alice, `"in_reply_to":"`+first.MessageID+`"`)).wantProblem(429, relay.ConversationFull)
			alice.post(messages, letter(bob, conv, `"max_messages":4`)).wantProblem(400, relay.InvalidRequest)
			bob.mustAck(first.MessageID, "completed")
			if w := r.mustReadWish(founders); w.Status != "completed" { // not a second notice
				t.Errorf("%+v", w)
			}
		}
		free := alice.mustSend(bob)
		alice.post(messages, letter(bob, in(free.ConversationID), `"max_messages":2`)).wantProblem(400, relay.InvalidRequest)
		for _, most := range []string{"0", "-1", "1.5", "1000001", `"3"`} {
			alice.post(messages, letter(bob, `"max_messages":`+most)).wantProblem(400, relay.InvalidRequest)
		}
	})
}

// The server's limit also counts what a conversation held before.
func TestTheServersLimitOfAConversation(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	first := alice.mustSend(bob)
	long := alice.mustSend(bob, `"max_messages":5`)
	conv := in(first.ConversationID)
	bob.mustSend(alice, conv)
	label := in("talk")
	alice.mustSend(bob, label)
	r.settings.db.ConversationLimit = 3
	r.mustRestart()
	bob.mustSend(alice, conv)
	bob.mustSend(alice, label)
	bob.mustSend(alice, label)
	for _, c := range []string{conv, label} {
		bob.post(messages, letter(alice, c)).wantProblem(429, relay.ConversationFull)
	}
	for range 4 {
		bob.mustSend(alice, in(long.ConversationID)) // its founder has said more
	}
	bob.post(messages, letter(alice, in(long.ConversationID))).wantProblem(429, relay.ConversationFull)
	r.settings.db.ConversationLimit = 0
	r.mustRestart()
	bob.mustSend(alice, conv)
	bob.post(messages, letter(alice, in(long.ConversationID))).wantProblem(429, relay.ConversationFull)
}

func TestTraceContextIsHandedOn(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	socket := bob.mustDial("sync_limit=0")
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct{ parent, state, wantParent, wantState string }{
		{parent, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", parent, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"},
		{parent, "", parent, ""},
		{"", "a=b", "", ""},
		{"what it means is not the relay's business", "", "what it means is not the relay's business", ""},
		{strings.Repeat("0", 513), "a=b", "", ""},
		{parent, strings.Repeat("a", 513), parent, ""},
	} {
		var s sent
		alice.post(messages, letter(bob), with("Traceparent", c.parent), with("Tracestate", c.state)).want(201).into(&s)
		for of, w := range map[string]wish{"record": bob.wish(s.MessageID), "frame": r.mustReadWish(socket)} {
			if w.MessageID != s.MessageID || w.TraceParent != c.wantParent || w.TraceState != c.wantState {
				t.Errorf("%+v: the %s is %+v", c, of, w)
			}
		}
	}
}

func TestTheAnswerToASendTellsOfTheRecipient(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^other")
		recipient := func(a reply) string {
			t.Helper()
			_, of, _ := strings.Cut(string(a.want(201).body), `"recipient":`)
			return strings.TrimSuffix(of, "}\n")
		}
		want := func(got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		for n := range 2 {
			want(recipient(alice.post(messages, letter(bob))), fmt.Sprintf(`{"online":false,"last_seen":null,"pending":%d}`, n))
		}
		bob.mustDial("sync_limit=0")
		seen := `"last_seen":"2026-11-20T08:00:00.000Z"`
		first := alice.post(messages, letter(bob), with("Idempotency-Key", "once"))
		want(recipient(first), `{"online":true,`+seen+`,"pending":2}`)
		want(recipient(alice.post(messages, letter(bob))), `{"online":true,`+seen+`,"pending":3}`)
		if again := alice.post(messages, letter(bob), with("Idempotency-Key", "once")); string(again.body) != string(first.body) {
			t.Errorf("the first answer was %s, the second %s", first.body, again.body)
		}
		r.mustRestart()
		want(recipient(alice.post(messages, letter(bob))), `{"online":false,`+seen+`,"pending":4}`)

		bob.do("PUT", "/api/v1/mecha/bob^demo/profile", `{"visibility":"crew"}`).want(200)
		want(recipient(carol.post(messages, letter(bob))), "null")
		want(recipient(alice.post(messages, letter(bob))), `{"online":false,`+seen+`,"pending":6}`)
		bob.do("PUT", "/api/v1/mecha/bob^demo/profile", `{"visibility":"unlisted"}`).want(200)
		want(recipient(carol.post(messages, letter(bob))), `{"online":false,`+seen+`,"pending":7}`)
	})
}
