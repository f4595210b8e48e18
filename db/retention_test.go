package db_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/dbtest"
	"relay/db/look"
	"relay/db/relay"
	"relay/db/scratch"
)

// later is a time at which Idempotency-Keys answer no more.
func later() time.Time { return time.Now().Add(25 * time.Hour) }

// mustPrune removes the messages before one, up to so many, and returns how many there were.
func (s store) mustPrune(before relay.MessageID, most int) relay.Pruned {
	s.t.Helper()
	p, err := s.Cursor(before)
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := s.Apply(&relay.PruneMessages{At: later(), Before: p, Limit: most})
	if err != nil {
		s.t.Fatal(err)
	}
	return out.(relay.Pruned)
}

// mustPruneAll removes all messages, and what they leave behind.
func (s store) mustPruneAll(at time.Time) {
	s.t.Helper()
	for after := relay.Position(0); ; {
		out, err := s.Apply(&relay.PruneMessages{At: at, After: after, Before: relay.MaxPosition, Limit: 50})
		if err != nil {
			s.t.Fatal(err)
		}
		if after = out.(relay.Pruned).After; !out.(relay.Pruned).More {
			break
		}
	}
	s.mustPruneUnused(at)
}

func (s store) mustPruneUnused(at time.Time) {
	s.t.Helper()
	for w := (&relay.PruneUnused{At: at, EmptySince: at, Limit: 7}); ; {
		out, err := s.Apply(w)
		if err != nil {
			s.t.Fatal(err)
		}
		next := out.(relay.PrunedUnused)
		if !next.More {
			return
		}
		w = &relay.PruneUnused{At: at, EmptySince: at, Limit: 7, Words: next.Words, Keys: next.Keys, Mechas: next.Mechas}
	}
}

// Every way to ask for a Mecha's messages gives those that were not removed, at every
// moment: before and after they are indexed, while their rows in the mailboxes wait to be
// deleted, in another process, after a stop, and after a kill.
func TestMessagesThatWereRemovedAreFoundNowhere(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	mechas := s.mustIssueSome(5)
	random := rand.New(rand.NewPCG(3, 5)) // with which the usual form removes messages whose segment is not sealed
	var all []known
	var gone []relay.MessageID
	keyed := map[relay.MessageID]bool{} // these stay
	removed := 0
	for round := range scratch.Amount(t, 10, 60) {
		for range 4 + random.IntN(9) {
			isKeyed := random.IntN(6) == 0
			sent := s.mustSendAmong(mechas, all, random, func(from relay.IssuedKey, m *relay.SendMessage) {
				if isKeyed {
					m.Idempotency = s.IdempotencyKey(from.Mecha.Number, fmt.Sprint(random.Int64()), m.Payload)
				}
			})
			keyed[sent.id] = isKeyed
			all = append(all, sent)
		}
		for range random.IntN(6) {
			s.mustComplete(&all[random.IntN(len(all))], mechas)
		}
		before, most := all[random.IntN(len(all))].id, 1+random.IntN(12)
		if random.IntN(3) == 0 { // almost all, even messages that are not indexed yet
			before, most = all[len(all)-1].id, 1000
		}
		p, err := s.Cursor(before)
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Apply(&relay.PruneMessages{At: time.Now().Add(23 * time.Hour), Before: p, Limit: most})
		if err != nil {
			t.Fatal(err)
		}
		left := out.(relay.Pruned).Messages
		removed += left
		all = slices.DeleteFunc(all, func(m known) bool {
			if left == 0 || keyed[m.id] || m.id >= before {
				return false
			}
			left--
			gone = append(gone, m.id)
			return true
		})
		if left != 0 {
			t.Fatalf("%d too many were removed", left)
		}
		s.wantMailboxes(all, mechas)
		if len(gone) > 0 {
			s.wantGone(gone[random.IntN(len(gone))], all, mechas)
		}
		switch round % 5 {
		case 0:
			s.wantForOthers(all, mechas)
		case 1, 3:
			wantSound(t, s.Path())
		case 2:
			s = s.killed()
			s.wantMailboxes(all, mechas)
		case 4:
			s = s.stopped(len(all))
			s.wantMailboxes(all, mechas)
		}
	}
	if removed < 40 {
		t.Errorf("only %d messages were removed", removed)
	}
}

// wantGone asks for a message that was removed. As a cursor it works: before and after it
// stand the others.
func (s store) wantGone(id relay.MessageID, left []known, mechas []relay.IssuedKey) {
	s.t.Helper()
	for _, k := range mechas {
		_, err := s.Message(ctx, k.Mecha.Number, id)
		wantCode(s.t, err, relay.MessageNotFound)
		_, err = s.Payload(ctx, k.Mecha.Number, id)
		wantCode(s.t, err, relay.MessageNotFound)
		_, err = s.ack(k.Key, id, "completed")
		wantCode(s.t, err, relay.MessageNotFound)
		var after, before []relay.MessageID
		for _, m := range left {
			if m.from != k.Mecha.Number && m.to != k.Mecha.Number {
				continue
			}
			if m.id > id {
				after = append(after, m.id)
			} else {
				before = append([]relay.MessageID{m.id}, before...)
			}
		}
		if got := s.pages(relay.HistoryQuery{Mecha: k.Mecha.Number, After: id, Limit: 3}); !slices.Equal(got, after) {
			s.t.Fatalf("after %s: %v, want %v", id, got, after)
		}
		if got := s.pages(relay.HistoryQuery{Mecha: k.Mecha.Number, Before: id, Descending: true, Limit: 3}); !slices.Equal(got, before) {
			s.t.Fatalf("before %s: %v, want %v", id, got, before)
		}
	}
}

// No id is issued twice, although the rows of the newest messages are gone and the clock
// is set back.
func TestNoIDIsIssuedTwice(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice := s.mustIssue("alice^demo")
	seen := map[relay.MessageID]bool{}
	var last relay.MessageID
	for _, at := range []time.Time{time.Now().Add(time.Hour), time.Now(), time.Now().Add(-time.Hour)} {
		for range 3 {
			sent := s.mustSend(alice.Key, "alice^demo", `{}`, func(m *relay.SendMessage) { m.At = at })
			if seen[sent.ID] || sent.ID <= last {
				t.Errorf("%s came after %s", sent.ID, last)
			}
			seen[sent.ID], last = true, sent.ID
		}
		s.mustPruneAll(later())
		if p := s.mustHistory(relay.HistoryQuery{Mecha: alice.Mecha.Number}); len(p.Messages) != 0 {
			t.Fatalf("%d messages are left", len(p.Messages))
		}
		s.Close()
		s = mustOpen(t, func(o *db.Options) { o.Path, o.Create = s.Path(), false })
	}
}

// A conversation continues without its founding message, and without any message. Its
// parties stay its parties, and nobody else gets in. At last it ends.
func TestAConversationOutlivesItsMessages(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob, carol, dave := s.mustIssue("alice^demo"), s.mustIssue("bob^demo"), s.mustIssue("carol^demo"), s.mustIssue("dave^demo")
	founder := s.mustSend(alice.Key, "bob^demo", `{"n": 1}`)
	in := func(m *relay.SendMessage) { m.Conversation = founder.Conversation }
	others := func() {
		t.Helper()
		_, err := s.send(dave.Key, "alice^demo", `{}`, in)
		wantCode(t, err, relay.NotAParticipant)
		_, err = s.History(ctx, relay.HistoryQuery{Mecha: dave.Mecha.Number, Limit: 9, Conversation: founder.Conversation, MustTakePart: true})
		wantCode(t, err, relay.NotAParticipant)
	}
	s.mustPruneAllMessages()
	others()
	if p := s.mustHistory(relay.HistoryQuery{Mecha: bob.Mecha.Number, Conversation: founder.Conversation, MustTakePart: true}); len(p.Messages) != 0 {
		t.Error("it has messages")
	}
	second := s.mustSend(bob.Key, "alice^demo", `{"n": 2}`, in) // wakes it
	third := s.mustSend(alice.Key, "carol^demo", `{"n": 3}`, in)
	if second.Conversation != founder.Conversation || third.Conversation != founder.Conversation {
		t.Errorf("they are in %s and %s", second.Conversation, third.Conversation)
	}
	others()
	s.mustPrune(third.ID, 5)
	others()
	reply := s.mustSend(alice.Key, "bob^demo", `{"n": 1}`)
	s.mustSend(bob.Key, "alice^demo", `{"n": 2}`, func(m *relay.SendMessage) { m.Conversation = reply.Conversation })
	next := s.mustSend(dave.Key, "dave^demo", `{}`)
	s.mustPrune(s.mustHistory(relay.HistoryQuery{Mecha: bob.Mecha.Number, Conversation: reply.Conversation}).Messages[1].ID, 50) // its founder alone
	for _, who := range []relay.IssuedKey{alice, bob} {
		if p := s.mustHistory(relay.HistoryQuery{Mecha: who.Mecha.Number, Conversation: reply.Conversation, MustTakePart: true}); len(p.Messages) != 1 {
			t.Errorf("%s finds %d messages", who.Mecha.Address, len(p.Messages))
		}
	}
	s.mustPrune(next.ID, 50)
	s.mustSend(bob.Key, "carol^demo", `{"n": 4}`, in)
	s.mustSend(carol.Key, "alice^demo", `{"n": 5}`, in)
	s.mustPruneAllMessages()
	wantSound(t, s.Path())
	s.mustPruneUnused(time.Now().Add(48 * time.Hour))
	_, err := s.send(carol.Key, "alice^demo", `{}`, in)
	wantCode(t, err, relay.ConversationNotFound)
	s.Close()
	wantSound(t, s.Path())
}

// mustPruneAllMessages leaves behind what they leave behind.
func (s store) mustPruneAllMessages() {
	s.t.Helper()
	for {
		out, err := s.Apply(&relay.PruneMessages{At: later(), Before: relay.MaxPosition, Limit: 100})
		if err != nil {
			s.t.Fatal(err)
		}
		if !out.(relay.Pruned).More {
			return
		}
	}
}

// A removed label is a new one when it is used again: no earlier party takes part, and no
// cache, of this process or another, takes the old number for it.
func TestALabelThatComesAgainIsANewOne(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob, carol := s.mustIssue("alice^demo"), s.mustIssue("bob^demo"), s.mustIssue("carol^demo")
	in := func(m *relay.SendMessage) { m.Conversation, m.Type = "a-label", "a-type" }
	reads, err := look.Inspect(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer reads.Close()
	if _, err := reads.Changed(); err != nil {
		t.Fatal(err)
	}
	listed := func(q relay.HistoryQuery) int {
		t.Helper()
		list, err := dbtest.Messages(ctx, reads, q)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	s.mustSend(alice.Key, "bob^demo", `{"n": 1}`, in)
	s.mustSend(alice.Key, "bob^demo", `{"n": 2}`, func(m *relay.SendMessage) { m.Type = "the newest word" })
	if n := listed(relay.HistoryQuery{Type: "a-type"}) + listed(relay.HistoryQuery{Conversation: "a-label"}); n != 2 {
		t.Fatalf("%d are listed before", n)
	}
	s.mustPruneAllMessages()
	s.mustSend(carol.Key, "bob^demo", `{"n": 3}`, func(m *relay.SendMessage) { m.At = m.At.Add(72 * time.Hour) }) // the words are older than it by far
	s.mustPruneUnused(time.Now().Add(96 * time.Hour))
	in3 := func(m *relay.SendMessage) { in(m); m.At = m.At.Add(72 * time.Hour) }
	s.mustSend(carol.Key, "bob^demo", `{"n": 4}`, in3)
	for who, want := range map[relay.MechaNumber]bool{alice.Mecha.Number: false, bob.Mecha.Number: true, carol.Mecha.Number: true} {
		_, err := s.History(ctx, relay.HistoryQuery{Mecha: who, Limit: 9, Conversation: "a-label", MustTakePart: true})
		if (err == nil) != want {
			t.Errorf("Mecha %d: %v", who, err)
		}
	}
	if _, err := reads.Changed(); err != nil {
		t.Fatal(err)
	}
	if n := listed(relay.HistoryQuery{Type: "a-type"}); n != 1 {
		t.Errorf("%d of the type are listed", n)
	}
	if n := listed(relay.HistoryQuery{Conversation: "a-label"}); n != 1 {
		t.Errorf("%d of the label are listed", n)
	}
	s.Close()
	wantSound(t, s.Path())
}

// A message with an Idempotency-Key stays for 24 hours, and goes then.
func TestAnIdempotencyKeyKeepsItsMessage(t *testing.T) {
	s := mustOpen(t)
	alice := s.mustIssue("alice^demo")
	keyed := func(m *relay.SendMessage) {
		m.Idempotency = s.IdempotencyKey(alice.Mecha.Number, "once", m.Payload)
	}
	first := s.mustSend(alice.Key, "alice^demo", `{}`, keyed)
	s.mustSend(alice.Key, "alice^demo", `{}`)
	for _, c := range []struct {
		at         time.Duration
		goes, stay int
	}{{time.Hour, 1, 1}, {23 * time.Hour, 0, 1}, {25 * time.Hour, 1, 0}} {
		if c.stay > 0 {
			if again := s.mustSend(alice.Key, "alice^demo", `{}`, keyed); again.ID != first.ID || !again.Replayed {
				t.Errorf("after %v: %+v", c.at, again)
			}
		}
		out, err := s.Apply(&relay.PruneMessages{At: time.Now().Add(c.at), Before: relay.MaxPosition, Limit: 100})
		if p := out.(relay.Pruned); err != nil || p.Messages != c.goes || p.Kept != c.stay {
			t.Errorf("after %v: %+v, %v", c.at, p, err)
		}
	}
}

// A long page is read in pieces. Messages that are removed between two pieces leave it;
// they are not damage.
func TestMessagesMayBeRemovedWhileAPageIsRead(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
	payload := fmt.Sprintf(`{"text": %q}`, strings.Repeat("x", 200<<10)) // a piece has two of them
	for range 3 {
		for range 18 {
			s.mustSend(alice.Key, "bob^demo", payload)
		}
		read := make(chan error)
		go func() {
			for left := 1; left > 0; {
				p, err := s.History(ctx, relay.HistoryQuery{Mecha: bob.Mecha.Number, Limit: 100, Payload: true})
				if err != nil {
					read <- err
					return
				}
				for _, m := range p.Messages {
					if string(m.Payload) != payload {
						t.Errorf("%s has a payload of %d bytes", m.ID, len(m.Payload))
					}
				}
				left = len(p.Messages)
			}
			read <- nil
		}()
		for more := true; more; {
			out, err := s.Apply(&relay.PruneMessages{At: later(), Before: relay.MaxPosition, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			more = out.(relay.Pruned).More
		}
		if err := <-read; err != nil {
			t.Fatal(err)
		}
	}
	s.mustSend(alice.Key, "bob^demo", `{}`)
}
