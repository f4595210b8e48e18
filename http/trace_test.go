package http_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay/db/relay"
	"relay/db/scratch/wire"
)

type traced struct {
	Message record
	Steps   []struct {
		What, Status, Detail, Worker string
		KeyID                        string `json:"key_id"`
		MessageID                    string `json:"message_id"`
		Sockets                      int
		Until                        string
	}
	Verdict struct {
		Code, Text string
		Since      *string
	}
}

func (m mecha) trace(id string) (t traced) {
	m.r.t.Helper()
	m.get(messagePath(id) + "/trace").want(200).into(&t)
	return t
}

func (t traced) steps() string {
	var all []string
	for _, s := range t.Steps {
		all = append(all, strings.TrimSpace(s.What+" "+s.Status))
	}
	return strings.Join(all, ", ")
}

// Every rule of the verdict, by a real situation.
func TestTheVerdictOnAMessage(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(s *settings) { s.hub.SyncAckWait = 0 })
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		want := func(id, code string, says ...string) {
			t.Helper()
			got := alice.trace(id)
			if got.Verdict.Code != code {
				t.Errorf("%s: %+v, steps %s; want %s", id, got.Verdict, got.steps(), code)
			}
			for _, part := range says {
				if !strings.Contains(got.Verdict.Text, part) {
					t.Errorf("%s: %q lacks %q", code, got.Verdict.Text, part)
				}
			}
		}
		first := alice.mustSend(bob)
		want(first.MessageID, "never_connected")
		bob.get(whoami).want(200)
		r.clock.advance(time.Minute)
		second := alice.mustSend(bob)
		want(second.MessageID, "away", "last seen at 2026-11-20T08:00:00.000Z", "1 earlier message is also waiting")

		socket := bob.mustDial("sync_limit=1")
		if w := r.mustReadWish(socket); w.MessageID != first.MessageID {
			t.Fatalf("%+v", w)
		}
		r.until("the push is noted", func() bool { return alice.trace(first.MessageID).Verdict.Code == "pushed" })
		want(first.MessageID, "pushed", "1 socket of bob^demo")
		want(second.MessageID, "behind", "1 earlier message is also waiting")
		bob.mustAck(first.MessageID, "processing")
		synctest.Wait() // the socket has got the second one, and is live
		want(first.MessageID, "working", "processing")
		bob.post(messagePath(first.MessageID)+"/ack", `{"status":"deferred","client_ts":"2026-11-20T08:00:00Z","detail":"too busy","retry_after_seconds":600}`).want(200)
		want(first.MessageID, "deferred", "2026-11-20T08:11:00.000Z", "(too busy)")
		third := alice.mustSend(bob)
		if got := bob.claim(`{"limit":9,"worker":"w1"}`); len(got) != 2 {
			t.Fatalf("%+v", got)
		}
		want(third.MessageID, "claimed", "A worker of bob^demo", "08:02:00")
		if v := bob.trace(third.MessageID).Verdict; !strings.Contains(v.Text, `“w1”`) {
			t.Errorf("the recipient is told %+v", v)
		}
		bob.mustAck(third.MessageID, "processing")
		want(third.MessageID, "working")
		r.clock.advance(time.Minute)
		r.until("the lease ends", func() bool { return strings.HasSuffix(alice.trace(third.MessageID).steps(), "returned") })
		r.until("nobody works on it any more", func() bool { return alice.trace(third.MessageID).Verdict.Code == "pushed" })
		bob.mustAck(third.MessageID, "seen")
		want(third.MessageID, "acknowledged", "as seen", "no answer")
		answer := bob.mustSend(alice, in(third.ConversationID))
		want(third.MessageID, "answered", answer.MessageID)
		bob.mustAck(second.MessageID, "failed")
		want(second.MessageID, "failed")
		bob.mustAck(first.MessageID, "rejected")
		want(first.MessageID, "rejected")
		fourth := alice.mustSend(bob, `"ttl_seconds":60`, `"ack_by_seconds":5`)
		r.clock.advance(2 * time.Minute)
		r.until("it expires", func() bool { return strings.HasSuffix(alice.trace(fourth.MessageID).steps(), "expired") })
		want(fourth.MessageID, "expired", "at 2026-11-20T08:03:00.000Z")
		fifth := alice.mustSend(bob)
		r.mustRevoke(bob)
		want(fifth.MessageID, "recipient_gone")
		want(third.MessageID, "answered")

		dora := r.mustIssue("dora^other")
		dora.do("PUT", "/api/v1/mecha/dora^other/profile", `{"visibility":"crew"}`).want(200)
		away := alice.mustSend(dora)
		want(away.MessageID, "waiting")
		hidden := dora.mustDial("")
		r.mustReadWish(hidden)
		r.until("the push is noted", func() bool { return dora.trace(away.MessageID).Verdict.Code == "pushed" })
		if want(away.MessageID, "waiting"); alice.trace(away.MessageID).steps() != "accepted" {
			t.Error("the sender learns when a Mecha was connected whose profile it may not read")
		}
		alice.get(messagePath(dora.mustSend(dora).MessageID)+"/trace").wantProblem(403, relay.NotAParty)
		alice.get(messagePath("msg_x")+"/trace").wantProblem(404, relay.MessageNotFound)
	})
}

// The sender learns nothing of the recipient's keys and workers.
func TestTheStepsOfATrace(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		socket, also := bob.mustDial("sync_limit=0"), bob.mustDial("sync_limit=0")
		question := alice.mustSend(bob, `"ack_by_seconds":90`)
		r.mustReadWish(socket)
		r.mustReadWish(also)
		r.until("both pushes are noted", func() bool { s := bob.trace(question.MessageID).Steps; return len(s) > 1 && s[1].Sockets == 2 })
		bob.claim(`{"worker":"w1","lease_seconds":60}`)
		r.clock.advance(time.Second)
		bob.mustDeliver(question.MessageID)
		r.clock.advance(60 * time.Second)
		r.until("the lease ends", func() bool { return strings.HasSuffix(bob.trace(question.MessageID).steps(), "returned") })
		r.clock.advance(60 * time.Second)
		r.until("it is overdue", func() bool { return strings.HasSuffix(bob.trace(question.MessageID).steps(), "overdue") })
		bob.mustAck(question.MessageID, "processing")
		r.clock.advance(time.Second)
		answer := bob.mustSend(alice, `"in_reply_to":"`+question.MessageID+`"`)
		r.clock.advance(time.Second)
		bob.mustAck(question.MessageID, "completed")
		const want = "accepted, pushed, claimed, delivered, returned, overdue, progress processing, answered, acknowledged completed"
		own, theirs := bob.trace(question.MessageID), alice.trace(question.MessageID)
		if got := own.steps(); got != want || theirs.steps() != own.steps() {
			t.Fatalf("the steps are\n%s\n%s", got, theirs.steps())
		}
		if s := own.Steps[2]; s.Worker != "w1" || s.Until != "2026-11-20T08:01:00.000Z" || s.KeyID == "" {
			t.Errorf("%+v", s)
		}
		for i, s := range theirs.Steps {
			if (s.KeyID != "") != (i == 0) || s.Worker != "" {
				t.Errorf("the sender sees %+v", s)
			}
			if s.What == "answered" && s.MessageID != answer.MessageID {
				t.Errorf("%+v", s)
			}
		}
		if theirs.Message.MessageID != question.MessageID || theirs.Verdict.Code != "answered" {
			t.Errorf("%+v", theirs)
		}
	})
}
