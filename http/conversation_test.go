package http_test

import (
	"slices"
	"strings"
	"testing"

	"relay/db/relay"
)

func in(conversation string) string { return `"conversation_id":"` + conversation + `"` }

func (m mecha) conversation(id, query string) (p page) {
	m.r.t.Helper()
	m.get("/api/v1/conversations/" + id + "/messages?" + query).want(200).into(&p)
	return p
}

func TestConversationsOfTheRelay(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob, carol, dave := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo"), r.mustIssue("dave^demo")
	first := alice.mustSend(bob)
	other := alice.mustSend(bob)
	if first.ConversationID == other.ConversationID {
		t.Fatal("two new conversations have one id")
	}
	conv := first.ConversationID

	// An outsider cannot write into it; a Mecha that has received in it can.
	carol.post(messages, letter(bob, in(conv))).wantProblem(403, relay.NotAParticipant)
	second := bob.mustSend(alice, in(conv))
	third := alice.mustSend(carol, in(conv))
	fourth := carol.mustSend(bob, in(conv))
	if third.ConversationID != conv || fourth.ConversationID != conv {
		t.Errorf("%+v, %+v are not in %s", third, fourth, conv)
	}
	dave.post(messages, letter(bob, in(conv))).wantProblem(403, relay.NotAParticipant)
	dave.post(messages, letter(dave, in(conv))).wantProblem(403, relay.NotAParticipant) // nor write oneself in
	dave.get("/api/v1/conversations/"+conv+"/messages").wantProblem(403, relay.NotAParticipant)

	// Each sees what it sent or received.
	for _, row := range []struct {
		m    mecha
		want []string
	}{
		{alice, []string{first.MessageID, second.MessageID, third.MessageID}},
		{bob, []string{first.MessageID, second.MessageID, fourth.MessageID}},
		{carol, []string{third.MessageID, fourth.MessageID}},
	} {
		if p := row.m.conversation(conv, ""); !slices.Equal(p.ids(), row.want) || p.HasMore || p.Limit != 100 {
			t.Errorf("%s sees %+v, want %v", row.m.Mecha.Address, p, row.want)
		}
		if p := row.m.history("conversation_id=" + conv); !slices.Equal(p.ids(), row.want) {
			t.Errorf("%s has %v, want %v", row.m.Mecha.Address, p.ids(), row.want)
		}
		back := slices.Clone(row.want)
		slices.Reverse(back)
		if p := row.m.conversation(conv, "order=desc"); !slices.Equal(p.ids(), back) {
			t.Errorf("%s, backwards: %v", row.m.Mecha.Address, p.ids())
		}
	}
	if p := alice.conversation(conv, "direction=in"); !slices.Equal(p.ids(), []string{second.MessageID}) {
		t.Errorf("received in it: %v", p.ids())
	}
	if p := alice.conversation(conv, "direction=out&peer=bob%5Edemo"); !slices.Equal(p.ids(), []string{first.MessageID}) {
		t.Errorf("sent to bob in it: %v", p.ids())
	}
	if p := alice.conversation(conv, "limit=1&since_message_id="+first.MessageID); !slices.Equal(p.ids(), []string{second.MessageID}) || !p.HasMore {
		t.Errorf("the second page: %+v", p)
	}
	if p := bob.conversation(conv, "include=payload"); p.Messages[0].Payload == nil || p.Messages[1].Payload != nil {
		t.Errorf("payloads are for what was received: %+v", p.Messages)
	}
	if p := dave.history("conversation_id=" + conv); len(p.Messages) != 0 {
		t.Errorf("dave has %v", p.ids())
	}
	r.wantMessages(5)
}

func TestConversationIDsThatWereNeverIssued(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	conv := alice.mustSend(alice).ConversationID
	foreign := mustServe(t)
	bob := foreign.mustIssue("bob^demo")
	for _, id := range []string{"conv_", "conv_x", conv + "0", strings.Replace(conv, "conv_", "conv_0", 1), bob.mustSend(bob).ConversationID} {
		alice.post(messages, letter(alice, in(id))).wantProblem(404, relay.ConversationNotFound)
		if p := alice.history("conversation_id=" + id); len(p.Messages) != 0 {
			t.Errorf("%s has %v", id, p.ids())
		}
	}
	for _, id := range []string{"a%20b", strings.Repeat("c", 129), "a%2Fb"} {
		if a := alice.get("/api/v1/conversations/" + id + "/messages"); a.status != 400 && a.status != 404 {
			t.Errorf("%s: %d", id, a.status)
		}
		alice.get(historyPath(alice)+"?conversation_id="+id).wantFault(400, relay.InvalidRequest, "conversation_id")
	}
	alice.get("/api/v1/conversations/"+conv+"/messages?limit=0").wantFault(400, relay.InvalidLimit, "limit")
	r.wantMessages(1)
}

// A client's own word is a label: anyone may use it, and each sees its own.
func TestLabels(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
	for _, label := range []string{"trip", "message", "normal", "1.0", "Conv_x", "conv", "a:b~c", strings.Repeat("l", 128)} {
		carol.get("/api/v1/conversations/"+label+"/messages").wantProblem(403, relay.NotAParticipant)
		if p := carol.history("conversation_id=" + label); len(p.Messages) != 0 || p.HasMore {
			t.Errorf("%s, unused: %+v", label, p)
		}
		one := alice.mustSend(bob, in(label))
		two := carol.mustSend(carol, in(label))
		if one.ConversationID != label || two.ConversationID != label || bob.record(one.MessageID).ConversationID != label {
			t.Errorf("%s became %+v, %+v", label, one, two)
		}
		for _, row := range []struct {
			m    mecha
			want string
		}{{alice, one.MessageID}, {bob, one.MessageID}, {carol, two.MessageID}} {
			if p := row.m.conversation(label, ""); !slices.Equal(p.ids(), []string{row.want}) {
				t.Errorf("%s sees %v in %s", row.m.Mecha.Address, p.ids(), label)
			}
		}
	}
	if p := alice.conversation("trip", ""); len(p.Messages) != 1 {
		t.Errorf("labels are mixed up: %v", p.ids())
	}
	if a := alice.get("/api/v1/conversations/TRIP/messages"); a.status != 403 {
		t.Errorf("labels are compared exactly: %d", a.status)
	}
}
