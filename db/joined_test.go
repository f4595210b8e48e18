package db_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"relay/db"
	"relay/db/dbtest"
	"relay/db/look"
	"relay/db/relay"
	"relay/db/scratch"
)

// knownAs returns what an accepted message should be.
func knownAs(sent relay.Sent, from, to relay.IssuedKey, question relay.MessageID) known {
	return known{id: sent.ID, from: from.Mecha.Number, to: to.Mecha.Number, conversation: sent.Conversation, question: question}
}

// mustSendAmong sends a message of one of the Mechas, perhaps into a conversation of the
// messages before it, or into that of a label, or as an answer.
func (s store) mustSendAmong(mechas []relay.IssuedKey, all []known, random *rand.Rand, more ...func(relay.IssuedKey, *relay.SendMessage)) known {
	s.t.Helper()
	from, to := mechas[random.IntN(len(mechas))], mechas[random.IntN(3)] // also to oneself
	var question relay.MessageID
	sent := s.mustSend(from.Key, to.Mecha.Address, `{}`, func(m *relay.SendMessage) {
		mine := slices.DeleteFunc(slices.Clone(all[max(0, len(all)-40):]), func(k known) bool { return k.from != from.Mecha.Number && k.to != from.Mecha.Number })
		switch random.IntN(4) {
		case 0:
			m.Conversation = relay.ConversationID(fmt.Sprint("label-", random.IntN(3)))
		case 1:
			if len(mine) > 0 {
				m.Conversation = mine[random.IntN(len(mine))].conversation
			}
		case 2:
			if len(mine) > 0 {
				question = mine[random.IntN(len(mine))].id
				m.InReplyTo = question
			}
		}
		for _, f := range more {
			f(from, m)
		}
	})
	return knownAs(sent, from, to, question)
}

// wantConversations compares every way to ask for the messages of a conversation, and for
// answers, with the known ones.
func (s store) wantConversations(all []known) {
	s.t.Helper()
	member := map[relay.ConversationID]relay.MechaNumber{}
	for _, m := range all {
		member[m.conversation] = m.from
	}
	for c, id := range member {
		for _, q := range []relay.HistoryQuery{{}, {Mecha: id, MustTakePart: true}, {State: relay.OnlyPending}} {
			var want []relay.MessageID
			for _, m := range all {
				if m.conversation == c && (q.Mecha == 0 || m.from == id || m.to == id) && (q.State == relay.AnyState || !m.done) {
					want = append(want, m.id)
				}
			}
			for _, q.Limit = range []int{2, 1000} {
				q.Conversation, q.Descending = c, false
				if got := s.pages(q); !slices.Equal(got, want) {
					s.t.Fatalf("%s, %+v:\n%v, want\n%v", c, q, got, want)
				}
				q.Descending = true
				got := s.pages(q)
				if slices.Reverse(got); !slices.Equal(got, want) {
					s.t.Fatalf("%s, %+v:\n%v, want\n%v", c, q, got, want)
				}
			}
		}
	}
	for i, m := range all {
		q, err := s.Message(ctx, m.from, m.id)
		if err != nil {
			s.t.Fatal(err)
		}
		got := relay.MessageID("")
		if found := s.mustReply(q); found.Reply != nil {
			got = found.Reply.ID
		}
		if want := reply(all, i); got != want {
			s.t.Fatalf("the reply to %s is %q, want %q", m.id, got, want)
		}
	}
}

// reply returns the reply to a known message: the first one that names it, else the first one of
// its conversation that names none (PROTOCOL §3, Send).
func reply(all []known, question int) relay.MessageID {
	q := all[question]
	for _, names := range []relay.MessageID{q.id, ""} {
		for _, m := range all[question+1:] {
			if m.from == q.to && m.to == q.from && m.question == names && (names != "" || m.conversation == q.conversation) {
				return m.id
			}
		}
	}
	return ""
}

// wantAnswers compares the answers that another process finds with the known ones.
func wantAnswers(t testing.TB, path string, all []known) {
	t.Helper()
	in, err := look.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, q := range all {
		var want, got []relay.MessageID
		for _, m := range all {
			if m.question == q.id {
				want = append(want, m.id)
			}
		}
		list, err := dbtest.Answers(t.Context(), in, q.id)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			got = append(got, m.ID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the answers to %s are %v, want %v", q.id, got, want)
		}
	}
}

// Readers of conversations get every message once, in order, while messages are sent,
// answered and indexed.
func TestReadersOfConversationsMissNothingThatIsBeingIndexed(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	mechas, commits := s.mustIssueSome(4), s.commits()
	const labels = 3
	var sending, reading sync.WaitGroup
	var mu sync.Mutex
	of := map[relay.ConversationID]map[relay.MessageID]bool{}
	label := func(n int) relay.ConversationID { return relay.ConversationID(fmt.Sprint("label-", n%labels)) }
	for i, from := range mechas {
		sending.Go(func() {
			for n := range scratch.Amount(t, 30, 80) {
				to, c := mechas[(i+n)%len(mechas)], label(i+n)
				sent, err := s.send(from.Key, to.Mecha.Address, `{}`, func(m *relay.SendMessage) { m.Conversation = c })
				if err != nil {
					t.Error(err)
					return
				}
				answer, err := s.send(to.Key, from.Mecha.Address, `{}`, func(m *relay.SendMessage) { m.InReplyTo = sent.ID })
				if err != nil {
					t.Error(err)
					return
				}
				q, err := s.Message(ctx, from.Mecha.Number, sent.ID)
				if err != nil {
					t.Error(err)
					return
				}
				if found := s.mustReply(q); found.Reply == nil || found.Reply.ID != answer.ID {
					t.Errorf("the reply to %s is %+v, want %s", sent.ID, found.Reply, answer.ID)
				}
				mu.Lock()
				if of[c] == nil {
					of[c] = map[relay.MessageID]bool{}
				}
				of[c][sent.ID], of[c][answer.ID] = true, true
				mu.Unlock()
			}
		})
	}
	sent := make(chan struct{})
	for n := range labels {
		reading.Go(func() {
			got := s.follow(relay.HistoryQuery{Conversation: label(n), Limit: 7}, commits, sent)
			mu.Lock()
			defer mu.Unlock()
			if !maps.Equal(got, of[label(n)]) {
				t.Errorf("%s: %d messages, want %d", label(n), len(got), len(of[label(n)]))
			}
		})
	}
	sending.Wait()
	close(sent)
	reading.Wait()
}

// Whether a conversation continues without a message that was removed does not depend on
// where its other messages are found: in the index, or behind the watermark.
func TestAConversationGoesOnByMessagesThatAreNotIndexedYet(t *testing.T) {
	t.Parallel()
	for _, serve := range []bool{true, false} {
		for between := range 14 { // more than two segments
			if !scratch.Long(t) && between%4 != map[bool]int{true: 0, false: 3}[serve] {
				continue
			}
			s := mustOpen(t)
			alice, bob := s.mustIssue("alice^x"), s.mustIssue("bob^x")
			for range between {
				s.mustSend(alice.Key, "bob^x", `{}`)
			}
			founder := s.mustSend(alice.Key, "bob^x", `{}`)
			labelled := s.mustSend(alice.Key, "bob^x", `{}`, func(m *relay.SendMessage) { m.Conversation = "a-label" })
			next := s.mustSend(bob.Key, "alice^x", `{}`, func(m *relay.SendMessage) { m.InReplyTo = founder.ID })
			last := s.mustSend(bob.Key, "alice^x", `{}`, func(m *relay.SendMessage) { m.InReplyTo = labelled.ID })
			path := s.copied()
			s = mustOpen(t, func(o *db.Options) { o.Path, o.Create, o.Serve = path, false, serve })
			s.mustPrune(next.ID, 50)
			wantSound(t, path)
			left := []known{knownAs(next, bob, alice, founder.ID), knownAs(last, bob, alice, labelled.ID)}
			s.wantConversations(left)
			if n := s.countRows("SELECT count(*) FROM dormant WHERE conversation IN (SELECT conversation FROM message)"); n != 0 {
				t.Errorf("%d conversations that go on are dormant", n)
			}
			s.mustPrune(last.ID, 50) // the conversation of the first one is empty now
			wantSound(t, path)
			s.wantConversations(left[1:])
			if n := s.countRows("SELECT count(*) FROM dormant"); n != between+1 {
				t.Errorf("%d conversations are dormant, want %d", n, between+1)
			}
			s.Close()
			wantSound(t, path)
		}
	}
}

// A conversation's limit counts the messages that came before there was one, wherever they
// are found.
func TestALimitCountsMessagesThatAreNotIndexedYet(t *testing.T) {
	t.Parallel()
	in := func(m *relay.SendMessage) { m.Conversation = "a-label" }
	for before := 0; before < 14; before += scratch.Amount(t, 2, 1) {
		s := mustOpen(t)
		a := s.mustIssue("a^x")
		for range before {
			s.mustSend(a.Key, "a^x", `{}`, in)
		}
		path := s.copied()
		s = mustOpen(t, func(o *db.Options) { o.Path, o.Create, o.ConversationLimit = path, false, 20 })
		for range before {
			s.mustSend(a.Key, "a^x", `{}`)
		}
		for n := before; n <= 20; n++ {
			if _, err := s.send(a.Key, "a^x", `{}`, in); (err != nil) != (n == 20) {
				t.Fatalf("message %d after %d: %v", n, before, err)
			}
		}
		if n := s.countRows("SELECT held FROM conversation_limit"); n != 20 {
			t.Errorf("after %d messages, %d are counted", before, n)
		}
		wantSound(t, path)
	}
}
