package http_test

import (
	"slices"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch/wire"
)

// poll asks in the background; the answer comes on the channel.
func (m mecha) poll(path string) <-chan reply {
	m.r.t.Helper()
	c, answer := m.prepare("GET", path, ""), make(chan reply, 1)
	go func() {
		a, err := m.r.try(c)
		if err != nil {
			m.r.t.Error(err)
		}
		answer <- a
	}()
	return answer
}

// mustWait polls, and returns when the poll waits.
func (m mecha) mustWait(query string) <-chan reply {
	m.r.t.Helper()
	answer := m.poll(historyPath(m) + "?wait=50&" + query)
	select {
	case <-m.r.watching:
	case a := <-answer:
		m.r.t.Fatalf("the poll did not wait: %s", a.body)
	}
	return answer
}

func wantPage(t *testing.T, answer <-chan reply, ids ...string) {
	t.Helper()
	var p page
	if (<-answer).want(200).into(&p); !slices.Equal(p.ids(), ids) {
		t.Errorf("the poll brought %v, want %v", p.ids(), ids)
	}
}

func TestALongPollWakes(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		first := alice.mustSend(bob, `"ttl_seconds":60`).MessageID

		// There is a match: no waiting.
		wantPage(t, bob.poll(historyPath(bob)+"?wait=60&direction=in"), first)
		wantPage(t, bob.poll(historyPath(bob)+"?wait=600&state=pending"), first) // above 60 counts as 60

		new := bob.mustWait("direction=in&since_message_id=" + first)
		urgent := bob.mustWait("priority=urgent")
		sent := alice.mustWait("direction=out&since_message_id=" + first)
		delivered, acknowledged := bob.mustWait("state=delivered"), alice.mustWait("state=acknowledged")
		expired := alice.mustWait("state=expired")
		shared := bob.mustWait("conversation_id=plan")

		second := alice.mustSend(bob).MessageID
		wantPage(t, new, second)
		wantPage(t, sent, second)
		bob.mustDeliver(second)
		wantPage(t, delivered, second)
		bob.mustAck(second, "completed")
		wantPage(t, acknowledged, second)
		third := bob.mustSend(alice, in("plan")).MessageID
		wantPage(t, shared, third)
		r.clock.advance(time.Hour)
		fourth := alice.mustSend(bob, `"priority":"urgent"`).MessageID
		wantPage(t, urgent, fourth)
		wantPage(t, expired, first)

		answer := alice.poll("/api/v1/conversations/plan/messages?wait=50&since_message_id=" + third)
		<-r.watching
		fifth := bob.mustSend(alice, in("plan")).MessageID
		wantPage(t, answer, fifth)
	})
}

// It outlasts the time that a request may take to arrive.
func TestALongPollTimesOut(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(s *settings) { s.timeouts.Body = time.Second })
		alice := r.mustIssue("alice^demo")
		id := alice.mustSend(alice).MessageID
		began := time.Now()
		var p page
		alice.get(historyPath(alice) + "?wait=3&since_message_id=" + id).want(200).into(&p)
		if took := time.Since(began); len(p.Messages) != 0 || p.HasMore || *p.NextCursor != id || took < 3*time.Second {
			t.Errorf("after %s: %+v", took, p)
		}
		if p := alice.history("wait=0&since_message_id=" + id); len(p.Messages) != 0 {
			t.Errorf("%+v", p)
		}
	})
}

func TestALongPollEndsWithItsKey(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice := r.mustIssue("alice^demo")
		spare := r.mustIssue("alice^demo")
		brief := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.ExpiresAt = i.At.Add(time.Minute) })
		revoked, kept, expired := alice.mustWait(""), spare.mustWait(""), brief.mustWait("")
		r.mustRevoke(alice)
		(<-revoked).wantProblem(401, relay.KeyRevoked)
		r.clock.advance(time.Minute)
		(<-expired).wantProblem(401, relay.KeyExpired)
		id := spare.mustSend(spare).MessageID
		wantPage(t, kept, id)
	})
}

func TestALongPollCountsAsASocket(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(s *settings) { s.hub.MaxSocketsPerMecha, s.hub.MaxSockets = 2, 3 })
		alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
		one, two := alice.mustWait(""), alice.mustWait("")
		alice.get(historyPath(alice)+"?wait=1").wantProblem(429, relay.TooManySockets)
		alice.get(socketPath(alice), handshake).wantProblem(429, relay.TooManySockets)
		three := bob.mustWait("")
		carol.get(historyPath(carol)+"?wait=1").wantProblem(503, relay.TooManySockets) // the limit of all
		carol.get(historyPath(carol)).want(200)                                        // who does not wait is not counted

		id := alice.mustSend(alice).MessageID
		wantPage(t, one, id)
		wantPage(t, two, id)
		carol.mustSend(bob)
		<-three
		four := carol.mustWait("direction=in") // places are given back
		id = bob.mustSend(carol).MessageID
		wantPage(t, four, id)
	})
}

func TestALongPollEndsAtShutdown(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice := r.mustIssue("alice^demo")
		answer := alice.mustWait("")
		r.api.Drain()
		r.hub.Close(t.Context())
		wantPage(t, answer)
	})
}
