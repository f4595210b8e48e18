package db_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/db/scratch"
)

// wantLabels compares the messages that are found by each label with the known ones, and wants
// one word for each.
func (s store) wantLabels(known map[relay.ConversationID][]relay.MessageID) {
	s.t.Helper()
	for label, want := range known {
		if got := s.pages(relay.HistoryQuery{Conversation: label, Limit: 1000}); fmt.Sprint(got) != fmt.Sprint(want) {
			s.t.Fatalf("%s has the messages %v, want %v", label, got, want)
		}
	}
	if got := s.pages(relay.HistoryQuery{Conversation: "never used", Limit: 1000}); len(got) > 0 {
		s.t.Fatalf("a label that nobody has used has the messages %v", got)
	}
	if n := s.countRows("SELECT count(*) FROM word WHERE text LIKE 'label-%'"); n != len(known) {
		s.t.Fatalf("%d labels have %d words", len(known), n)
	}
}

// A label is found at every moment, and keeps its word, whether it is indexed or not: in the
// server, in another process, after a stop, and after a kill. A copy of the files takes the place
// of a kill.
func TestLabelsThatAreNotIndexedYetAreFound(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice := s.mustIssue("alice^x")
	random := rand.New(rand.NewPCG(1, 2))
	known := map[relay.ConversationID][]relay.MessageID{}
	send := func(by store, labels int) {
		t.Helper()
		for range labels {
			label := relay.ConversationID(fmt.Sprint("label-", random.IntN(len(known)+2)))
			sent := by.mustSend(alice.Key, "alice^x", `{}`, func(m *relay.SendMessage) { m.Conversation = label })
			known[label] = append(known[label], sent.ID)
		}
	}
	for round := range scratch.Amount(t, 16, 60) {
		send(s, random.IntN(6))
		s.wantLabels(known)
		switch round % 8 {
		case 0, 4:
			other := mustOpen(t, func(o *db.Options) { o.Path, o.Create, o.Serve = s.Path(), false, false })
			other.wantLabels(known)
			other.Close()
		case 1, 5:
			wantSound(t, s.Path())
		case 2, 6:
			s = s.killed()
		case 7:
			s.Close()
			wantSound(t, s.Path())
			if n := s.countRows("SELECT count(*) FROM word LEFT JOIN word_hash ON word = id WHERE word IS NULL"); n != 0 {
				t.Fatalf("a server that was stopped has left %d words without a row in the index", n)
			}
			s = mustOpen(t, func(o *db.Options) { o.Path, o.Create = s.Path(), false })
		}
		s.wantLabels(known)
	}
}

// A file with far more words behind the watermark than a server leaves has most of them indexed
// when it is open.
func TestManyLabelsAreIndexedAtAStart(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice := s.mustIssue("alice^x")
	known := map[relay.ConversationID][]relay.MessageID{}
	for n := range 50 {
		label := relay.ConversationID(fmt.Sprint("label-", n))
		known[label] = []relay.MessageID{s.mustSend(alice.Key, "alice^x", `{}`, func(m *relay.SendMessage) { m.Conversation = label }).ID}
	}
	s.Close()
	d := byHand(t, s.Path())
	for _, step := range []string{"DELETE FROM word_hash", "UPDATE setting SET value = 0 WHERE name = 'words_indexed_upto'"} {
		if _, err := d.Exec(step); err != nil {
			t.Fatal(err)
		}
	}
	wantSound(t, s.Path())
	s = mustOpen(t, func(o *db.Options) { o.Path, o.Create = s.Path(), false })
	if n := s.countRows("SELECT count(*) FROM word_hash"); n < 20 {
		t.Errorf("%d words are indexed at the start", n)
	}
	s.wantLabels(known)
	wantSound(t, s.Path())
	s.Close()
	wantSound(t, s.Path())
	if n := s.countRows("SELECT count(*) FROM word LEFT JOIN word_hash ON word = id WHERE word IS NULL"); n != 0 {
		t.Errorf("%d words are not indexed", n)
	}
}

// Two messages of one transaction have the same new label, and a third comes while it is indexed.
func TestALabelOfManySendersHasOneWord(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	mechas := s.mustIssueSome(8)
	labels := scratch.Amount(t, 40, 400)
	var sending sync.WaitGroup
	for i, from := range mechas {
		sending.Go(func() {
			for n := range labels {
				label := relay.ConversationID(fmt.Sprint("label-", n))
				sent, err := s.send(from.Key, mechas[(i+1)%len(mechas)].Mecha.Address, `{}`, func(m *relay.SendMessage) { m.Conversation = label })
				if err != nil {
					t.Error(err)
					return
				}
				found := false // the reader sees the label at once
				for _, id := range s.pages(relay.HistoryQuery{Conversation: label, Limit: 1000}) {
					found = found || id == sent.ID
				}
				if !found {
					t.Errorf("%s is not found by %s", sent.ID, label)
				}
			}
		})
	}
	sending.Wait()
	if n := s.countRows("SELECT count(*) FROM word WHERE text LIKE 'label-%'"); n != labels {
		t.Errorf("%d labels have %d words", labels, n)
	}
	wantSound(t, s.Path())
}

// A label that was removed, with its messages, is gone from the index, wherever it was, and gets
// a new word when it is used again.
func TestARemovedLabelLeavesTheIndex(t *testing.T) {
	t.Parallel()
	for between := 0; between < 16; between += scratch.Amount(t, 2, 1) { // more than two segments
		var ahead atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		s := mustOpen(t, func(o *db.Options) { o.Now = now })
		alice := s.mustIssue("alice^x")
		in := func(label string) func(*relay.SendMessage) {
			return func(m *relay.SendMessage) { m.At, m.Conversation = now(), relay.ConversationID(label) }
		}
		s.mustSend(alice.Key, "alice^x", `{}`, in("label-first"))
		for n := range between {
			s.mustSend(alice.Key, "alice^x", `{}`, in(fmt.Sprint("label-", n)))
		}
		first := s.countRows("SELECT id FROM word WHERE text = 'label-first'")
		ahead.Add(int64(2 * time.Hour))
		s.mustSend(alice.Key, "alice^x", `{}`, in("label-last"))
		for range 2 { // a conversation that was left ends later
			for _, w := range []relay.Write{
				&relay.PruneMessages{At: now(), Before: relay.PositionAt(now().Add(-time.Hour)), Limit: 100},
				&relay.PruneUnused{At: now(), EmptySince: now(), Limit: 100},
			} {
				if _, err := s.Apply(w); err != nil {
					t.Fatal(err)
				}
			}
			ahead.Add(int64(time.Minute))
		}
		if n := s.countRows("SELECT count(*) FROM word WHERE text = 'label-first'"); n != 0 {
			t.Fatal("the label is still there")
		}
		wantSound(t, s.Path())
		sent := s.mustSend(alice.Key, "alice^x", `{}`, in("label-first"))
		if got := s.pages(relay.HistoryQuery{Conversation: "label-first", Limit: 1000}); len(got) != 1 || got[0] != sent.ID {
			t.Errorf("the label has the messages %v, want %s", got, sent.ID)
		}
		if again := s.countRows("SELECT id FROM word WHERE text = 'label-first'"); again <= first {
			t.Errorf("the label has the number %d again, and had %d before", again, first)
		}
		for n := range 16 { // so that what waited is indexed
			s.mustSend(alice.Key, "alice^x", `{}`, in(fmt.Sprint("label-later-", n)))
		}
		wantSound(t, s.Path())
		s.Close()
		wantSound(t, s.Path())
	}
}
