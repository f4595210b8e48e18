package db_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
)

func (s store) mustReply(q *relay.Message) relay.ReplyFound {
	s.t.Helper()
	found, err := s.Reply(ctx, relay.ReplyQuery{Question: q})
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// The store finds the first message to which the rule applies, and prefers a message that
// names the question.
func TestTheStoreFindsTheReplyThatTheRuleSays(t *testing.T) {
	s := mustOpen(t)
	keys := []relay.IssuedKey{s.mustIssue("alice^demo"), s.mustIssue("bob^demo"), s.mustIssue("carol^demo")}
	owner := map[relay.MechaNumber]relay.IssuedKey{}
	for _, k := range keys {
		owner[k.Mecha.Number] = k
	}
	var all []*relay.Message // in commit order
	payloads := map[relay.MessageID]string{}
	for n := range scratch.Amount(t, 250, 1000) {
		from, to := keys[rand.N(3)], keys[rand.N(3)]
		earlier := rand.N(n + 1)
		if earlier < n && rand.N(2) == 0 { // chance alone makes few answers
			from, to = owner[all[earlier].Recipient], owner[all[earlier].Sender]
		}
		payload := fmt.Sprintf(`{"n":%d}`, n)
		sent, err := s.send(from.Key, to.Mecha.Address, payload, func(m *relay.SendMessage) {
			m.CorrelationID = []string{"", "", "c", "d"}[rand.N(4)]
			switch rand.N(4) {
			case 0:
				m.Conversation = []relay.ConversationID{"plan", "trip"}[rand.N(2)]
			case 1:
				if earlier < n {
					m.Conversation = all[earlier].Conversation
				}
			case 2:
				if earlier < n {
					m.InReplyTo = all[earlier].ID
				}
			}
		})
		switch relay.ErrorCode(err) {
		case relay.NotAParty, relay.NotAParticipant:
			sent = s.mustSend(from.Key, to.Mecha.Address, payload)
		default:
			if err != nil {
				t.Fatal(err)
			}
		}
		m, err := s.Message(ctx, from.Mecha.Number, sent.ID)
		if err != nil {
			t.Fatal(err)
		}
		all, payloads[m.ID] = append(all, m), payload
	}
	named, others, none := 0, 0, 0
	for _, q := range all {
		var want *relay.Message
		for _, m := range all {
			if m.IsReplyTo(q) && (want == nil || want.InReplyTo == "" && m.InReplyTo != "") {
				want = m
			}
		}
		found := s.mustReply(q)
		switch got := found.Reply; {
		case (got == nil) != (want == nil) || got != nil && got.ID != want.ID || found.More:
			t.Fatalf("the reply to %+v is %+v, want %+v", q, got, want)
		case got == nil:
			none++
			continue
		case got.InReplyTo != "":
			named++
		default:
			others++
		}
		if string(found.Reply.Payload) != payloads[want.ID] {
			t.Fatalf("%+v has the payload %s", want, found.Reply.Payload)
		}
	}
	if named < 10 || others < 10 || none < 10 {
		t.Errorf("%d replies name their question, %d do not, %d questions have none", named, others, none)
	}
}

// A search looks through so many messages at most. The next one continues where it ended.
func TestAReplyBehindManyMessages(t *testing.T) {
	s := mustOpen(t)
	alice, bob, carol := s.mustIssue("alice^demo"), s.mustIssue("bob^demo"), s.mustIssue("carol^demo")
	label := func(m *relay.SendMessage) { m.Conversation = "plaza" }
	sent := s.mustSend(alice.Key, "bob^demo", `{}`, label)
	q, err := s.Message(ctx, alice.Mecha.Number, sent.ID)
	if err != nil {
		t.Fatal(err)
	}
	const crowd = 10_100 // more than one search looks through
	var sending sync.WaitGroup
	for range 100 {
		sending.Go(func() {
			for range crowd / 100 {
				if _, err := s.send(carol.Key, "carol^demo", `{}`, label); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	reply := s.mustSend(bob.Key, "alice^demo", `{"here":1}`, label)
	first := s.mustReply(q)
	if first.Reply != nil || !first.More || first.Looked < 10_000 || first.Looked > crowd {
		t.Fatalf("%+v", first)
	}
	second, err := s.Reply(ctx, relay.ReplyQuery{Question: q, After: first.Upto})
	if err != nil || second.More || second.Reply == nil || second.Reply.ID != reply.ID || second.Looked > crowd-first.Looked {
		t.Fatalf("%+v, %v", second, err)
	}
	if named := s.mustSend(bob.Key, "alice^demo", `{}`, func(m *relay.SendMessage) { m.InReplyTo = q.ID }); s.mustReply(q).Reply.ID != named.ID {
		t.Error("a message that names the question is found at once")
	}
}
