package http_test

import (
	"context"
	"fmt"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/db/scratch/wire"
)

// answered is a 201 to a request that prefers to wait.
type answered struct {
	sent
	Reply *record `json:"reply"`
}

// question sends in the background and prefers to wait; the 201 comes on the channel.
func (m mecha) question(body string, changes ...change) <-chan reply {
	m.r.t.Helper()
	c := m.prepare("POST", messages, body, append([]change{with("Prefer", "wait=50")}, changes...)...)
	got := make(chan reply, 1)
	go func() {
		a, err := m.r.try(c)
		if err != nil {
			m.r.t.Error(err)
		}
		got <- a
	}()
	return got
}

// mustAsk asks, and returns when the request waits. The question is the last message of m.
func (m mecha) mustAsk(to mecha, fields ...string) (<-chan reply, record) {
	m.r.t.Helper()
	got := m.question(letter(to, fields...))
	select {
	case <-m.r.watching:
	case a := <-got:
		m.r.t.Fatalf("the request did not wait: %s", a.body)
	}
	return got, m.history("direction=out&order=desc&limit=1").Messages[0]
}

func wantReply(t *testing.T, got <-chan reply, question record, id, payload string) {
	t.Helper()
	var a answered
	r := (<-got).want(201)
	r.into(&a)
	switch {
	case a.MessageID != question.MessageID:
		t.Errorf("the 201 is that of %s, want %s", a.MessageID, question.MessageID)
	case id == "" && a.Reply != nil, id != "" && (a.Reply == nil || a.Reply.MessageID != id || string(a.Reply.Payload) != payload):
		t.Errorf("the reply is %+v, want %s with %s", a.Reply, id, payload)
	case r.header.Get("Preference-Applied") != "wait=50":
		t.Errorf("%v", r.header)
	}
}

func withPayload(to mecha, payload string, fields ...string) string {
	return strings.Replace(letter(to, fields...), `"payload":{}`, `"payload":`+payload, 1)
}

func (m mecha) mustReply(body string) string {
	m.r.t.Helper()
	var s sent
	m.post(messages, body).want(201).into(&s)
	return s.MessageID
}

func answering(id string) string { return `"in_reply_to":"` + id + `"` }

func TestASendWaitsForTheReply(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
	const payload = `{ "a": 1.50 }`
	t.Run("that names the question", func(t *testing.T) {
		got, q := alice.mustAsk(bob)
		other, p := alice.mustAsk(bob, in(q.ConversationID))
		bob.mustReply(letter(carol, answering(q.MessageID))) // to somebody else
		alice.mustReply(letter(bob, answering(q.MessageID))) // by the sender herself
		carol.mustReply(letter(alice))                       // in another conversation
		carol.mustReply(letter(alice, in(q.ConversationID))) // by another participant
		bob.mustReply(letter(alice, answering(p.MessageID)))
		wantReply(t, other, p, alice.history("direction=in&peer=bob^demo").ids()[0], "{}")
		id := bob.mustReply(withPayload(alice, payload, answering(q.MessageID)))
		wantReply(t, got, q, id, payload)
	})
	t.Run("in the conversation", func(t *testing.T) {
		got, q := alice.mustAsk(bob, `"correlation_id":"c"`, in("plan"))
		loose, p := alice.mustAsk(bob, in("plan"))
		id := bob.mustReply(letter(alice, in("plan"), `"correlation_id":"d"`))
		wantReply(t, loose, p, id, "{}")
		id = bob.mustReply(withPayload(alice, payload, in("plan"), `"correlation_id":"c"`))
		wantReply(t, got, q, id, payload)
	})
	t.Run("of the Mecha itself", func(t *testing.T) {
		got, q := alice.mustAsk(alice)
		wantReply(t, got, q, alice.mustReply(letter(alice, answering(q.MessageID))), "{}")
	})
	t.Run("that came before the wait", func(t *testing.T) {
		body := letter(bob, `"correlation_id":"c"`)
		first := alice.sendOnce("k", body).want(201)
		if first.field("reply") != "" {
			t.Errorf("without Prefer: %s", first.body)
		}
		var q record
		first.into(&q)
		alice.sendOnce("k", body, with("Prefer", "wait=0")).want(201).wantField("reply", "null").wantReplay(first)
		bob.mustSend(alice, in(q.ConversationID), `"correlation_id":"d"`)
		bob.mustSend(alice, in(q.ConversationID), `"correlation_id":"c"`, answering(q.MessageID))
		id := bob.mustReply(letter(alice, answering(q.MessageID)))
		first = alice.sendOnce("k", body, with("Prefer", "wait=0")).want(201)
		var a answered
		first.into(&a)
		if a.Reply == nil || a.Reply.MessageID == id || first.header.Get("Preference-Applied") != "wait=0" {
			t.Errorf("want the first of two: %s", first.body)
		}
		wantReply(t, alice.question(body, idempotent("k")), q, a.Reply.MessageID, "{}")
	})
	for _, prefer := range []string{"wait", "wait=-1", "wait=soon", "respond-async", ""} {
		if a := alice.post(messages, letter(bob), with("Prefer", prefer)).want(201); a.field("reply") != "" || a.header.Get("Preference-Applied") != "" {
			t.Errorf("%q: %s %v", prefer, a.body, a.header)
		}
	}
}

// The wait outlasts the time that a request may take to arrive.
func TestASendThatWaitsInVain(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(s *settings) { s.timeouts.Body = time.Second })
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		began := time.Now()
		a := alice.post(messages, letter(bob), with("Prefer", "wait=2")).want(201).wantField("reply", "null")
		if took := time.Since(began); took < 2*time.Second || a.header.Get("Preference-Applied") != "wait=2" {
			t.Errorf("after %s: %v", took, a.header)
		}
	})
}

// Whatever ends the wait, the message is sent, and the answer says so.
func TestAWaitForAReplyNeverRefuses(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(s *settings) { s.hub.MaxSocketsPerMecha = 2 })
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		spare := r.mustIssue("alice^demo")
		got, q := alice.mustAsk(bob)
		kept, p := spare.mustAsk(bob)

		full := alice.sendOnce("k", letter(bob), with("Prefer", "wait=50")).want(201).wantField("reply", "null")
		if full.header.Get("Preference-Applied") != "" {
			t.Errorf("it has not waited: %v", full.header)
		}
		var third record
		full.into(&third)
		id := bob.mustReply(letter(alice, answering(third.MessageID)))
		wantReply(t, spare.question(letter(bob), idempotent("k")), third, id, "{}") // it needs no wait
		alice.get(socketPath(alice), handshake).wantProblem(429, relay.TooManySockets)

		r.mustRevoke(alice)
		wantReply(t, got, q, "", "")
		id = bob.mustReply(letter(alice, answering(p.MessageID)))
		wantReply(t, kept, p, id, "{}")

		got, q = spare.mustAsk(bob)
		r.api.Drain()
		r.hub.Close(t.Context())
		wantReply(t, got, q, "", "")
	})
}

// A retry does not wait for the request that waits, and a client that goes away ends its wait.
func TestARetryWaitsAgain(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		ctx, leave := context.WithCancel(t.Context())
		c := alice.prepare("POST", messages, letter(bob), with("Prefer", "wait=50"), idempotent("k"))
		q, err := c.request(r.url)
		if err != nil {
			t.Fatal(err)
		}
		gone := make(chan error, 1)
		go func() {
			a, err := r.client.Do(q.WithContext(ctx))
			if err == nil {
				a.Body.Close()
			}
			gone <- err
		}()
		<-r.watching
		again := alice.question(letter(bob), idempotent("k"))
		<-r.watching // both wait
		var s sent
		alice.sendOnce("k", letter(bob)).want(201).into(&s)
		leave()
		if err := <-gone; err == nil {
			t.Error("the client has not gone")
		}
		wantEventually(t, "the wait of the client that has gone ends", func() bool { _, polls, _ := r.hub.Listeners(); return polls == 1 })
		id := bob.mustReply(letter(alice, answering(s.MessageID)))
		var asked record
		asked.MessageID = s.MessageID
		wantReply(t, again, asked, id, "{}")
		wantEventually(t, "all waits have ended", func() bool { _, polls, _ := r.hub.Listeners(); return polls == 0 })
	})
}

// answerAll sends back the payload of each message that the socket brings, many at once. An
// asker may have the reply before its sender has the 201: wait for answers before the server stops.
func (m mecha) answerAll(socket *websocket.Conn, answers *sync.WaitGroup) {
	for {
		var f struct {
			MessageID      string `json:"message_id"`
			ConversationID string `json:"conversation_id"`
			CorrelationID  string `json:"correlation_id"`
			From           string
			Payload        []byte `json:"payload_base64"`
		}
		if err := wsjson.Read(context.Background(), socket, &f); err != nil {
			return // the test has ended
		}
		field := fmt.Sprintf(`"conversation_id":%q,"correlation_id":%q`, f.ConversationID, f.CorrelationID)
		if f.ConversationID == "named" {
			field = answering(f.MessageID)
		}
		body := fmt.Sprintf(`{"to":%q,"payload":%s,%s}`, f.From, f.Payload, field)
		c := m.prepare("POST", messages, body)
		answers.Go(func() {
			if a, err := m.r.try(c); err != nil || a.status != 201 {
				m.r.t.Errorf("%d %s %v", a.status, a.body, err)
			}
		})
	}
}

func wantEventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// Many ask at once, and every question gets its own reply: by its name, by its
// conversation, and by the correlation_id in one conversation of all.
func TestRepliesAreNeverMixedUp(t *testing.T) {
	t.Parallel()
	n := scratch.Amount(t, 60, 1000)
	r := mustServe(t)
	go func() {
		for range r.watching {
		}
	}()
	var askers []mecha
	for i := range 10 {
		askers = append(askers, r.mustIssue(relay.Address(fmt.Sprintf("asker%d^demo", i))))
	}
	oracle := r.mustIssue("oracle^demo")
	var answers, asking sync.WaitGroup
	go oracle.answerAll(oracle.mustDial("sync_limit=0"), &answers)
	r.client.Transport.(*nethttp.Transport).MaxIdleConnsPerHost = n
	for i := range n {
		asking.Go(func() {
			payload := fmt.Sprintf(`{"n":%d}`, i)
			fields := [][]string{nil, {in("everybody"), fmt.Sprintf(`"correlation_id":"%d"`, i)}, {in("named")}}[i%3]
			var a answered
			body := withPayload(oracle, payload, fields...)
			(<-askers[i%10].question(body)).want(201).into(&a)
			if a.Reply == nil || string(a.Reply.Payload) != payload {
				t.Errorf("%s got %+v", payload, a.Reply)
			}
		})
	}
	asking.Wait()
	answers.Wait()
}
