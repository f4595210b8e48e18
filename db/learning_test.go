package db_test

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// taught is a store that learns, whose clock stands still until it is moved.
type taught struct {
	*searched
	keys map[relay.Address]*relay.Key
}

func mustTaught(t *testing.T, options ...func(*db.Options)) *taught {
	s := mustSearched(t, append([]func(*db.Options){func(o *db.Options) { db.Learns(o, 90*24*time.Hour) }}, options...)...)
	return &taught{s, map[relay.Address]*relay.Key{}}
}

func (s *taught) key(a relay.Address) *relay.Key {
	s.t.Helper()
	if s.keys[a] == nil {
		s.keys[a] = s.mustIssue(a).Key
	}
	return s.keys[a]
}

// mustFind saves a search of a Mecha, with its words, which lists others.
func (s *taught) mustFind(of relay.Address, words []string, listed ...relay.Address) relay.SearchID {
	s.t.Helper()
	w := &relay.SaveSearch{At: s.now(), ID: relay.NewSearchID(), Mecha: s.key(of).Mecha.Number, Answer: []byte("{}"), Words: words}
	for _, a := range listed {
		w.Listed = append(w.Listed, s.key(a).Mecha.Number)
	}
	saved := make(chan error, 1)
	s.SaveSearch(w, func(err error) { saved <- err })
	if err := <-saved; err != nil {
		s.t.Fatal(err)
	}
	return w.ID
}

// write sends a message that names a search, and gives its id.
func (s *taught) write(from, to relay.Address, search relay.SearchID) relay.MessageID {
	s.t.Helper()
	return s.mustSend(s.key(from), to, `{}`, func(m *relay.SendMessage) { m.At, m.SearchID = s.now(), search }).ID
}

func (s *taught) end(by relay.Address, id relay.MessageID, status string) {
	s.t.Helper()
	if _, err := s.ack(s.key(by), id, status, func(a *relay.Acknowledge) { a.At = s.now() }); err != nil {
		s.t.Fatal(err)
	}
	// The clock stands still, so that the store does not do this on its own.
	if _, err := s.Apply(&relay.CountExchanges{At: s.now(), HalfLife: relay.DefaultHalfLife, Limit: 10}); err != nil {
		s.t.Fatal(err)
	}
}

// exchange is a whole one: from searches, finds the Mecha and writes to it, and it answers.
func (s *taught) exchange(from, to relay.Address, status string, words ...string) {
	s.t.Helper()
	s.end(to, s.write(from, to, s.mustFind(from, words, to)), status)
}

// learned returns what is known of a Mecha; nothing at all if it was never counted.
func (s *taught) learned(a relay.Address) relay.Learned {
	s.t.Helper()
	all, err := db.LearningOf(s.DB).Learned(ctx, 0, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range all {
		if l.Mecha == s.key(a).Mecha.Number {
			return l
		}
	}
	return relay.Learned{}
}

// wantLearned checks the words of a Mecha and their weights.
func (s *taught) wantLearned(a relay.Address, want map[string]float64) {
	s.t.Helper()
	got := s.learned(a)
	if len(got.Words) != len(want) {
		s.t.Errorf("%s has the words %v, want %v", a, got.Words, want)
		return
	}
	for _, w := range got.Words {
		if weight, ok := want[w.Word]; !ok || math.Abs(w.Weight-weight) > .002 {
			s.t.Errorf("%s: the weight of %q is %v, want %v", a, w.Word, w.Weight, weight)
		}
	}
}

func TestACompletedMessageTeachesTheWordsOfItsSearch(t *testing.T) {
	s := mustTaught(t)
	search := s.mustFind("alice^demo", []string{"book", "flight"}, "carol^travel", "dave^travel")
	id := s.write("alice^demo", "carol^travel", search)
	s.end("carol^travel", id, "processing")
	s.end("carol^travel", id, "seen") // acknowledges, but is not final
	s.wantLearned("carol^travel", nil)
	s.end("carol^travel", id, "completed")
	s.wantLearned("carol^travel", map[string]float64{"book": 1, "flight": 1})
	s.end("carol^travel", id, "completed") // again: not counted
	s.wantLearned("carol^travel", map[string]float64{"book": 1, "flight": 1})
	s.wantLearned("dave^travel", nil)
	l := s.learned("carol^travel")
	if at := s.now(); l.Exchanges != 1 || !l.At.Equal(at) || !l.Words[0].At.Equal(at) || l.Words[0].Crews != 1 {
		t.Errorf("learned %+v", l)
	}
	s.end("carol^travel", s.write("alice^demo", "carol^travel", s.mustFind("alice^demo", []string{"flight"}, "carol^travel")), "completed")
	s.wantLearned("carol^travel", map[string]float64{"book": 1, "flight": 2})
}

// A search counts for the Mecha that made it, for those that it listed, and for a day.
func TestASearchThatDoesNotFitIsIgnored(t *testing.T) {
	s := mustTaught(t)
	mine := s.mustFind("alice^demo", []string{"book"}, "carol^travel", "alice^demo")
	for _, a := range []relay.Address{"bob^demo2", "dave^travel", "erin^travel"} {
		s.key(a)
	}
	ignored := func(what string, from, to relay.Address, id relay.SearchID) {
		t.Helper()
		s.end(to, s.write(from, to, id), "completed")
		if l := s.learned(to); len(l.Words) != 0 {
			t.Errorf("%s: it taught %v", what, l.Words)
		}
	}
	ignored("of another Mecha", "bob^demo2", "carol^travel", mine)
	ignored("that did not list the recipient", "alice^demo", "dave^travel", mine)
	ignored("that never was", "alice^demo", "carol^travel", relay.NewSearchID())
	ignored("without words", "alice^demo", "carol^travel", s.mustFind("alice^demo", nil, "carol^travel"))
	ignored("for the Mecha itself", "alice^demo", "alice^demo", mine)
	s.minutes.Add(24*60 - 1)
	s.exchangeWith(mine, "alice^demo", "carol^travel") // expired long ago, but of the last day
	s.wantLearned("carol^travel", map[string]float64{"book": 1})
	s.minutes.Add(1)
	ignored("of the day before", "alice^demo", "erin^travel", mine)
	s.exchangeWith(mine, "alice^demo", "carol^travel")
	s.wantLearned("carol^travel", map[string]float64{"book": 1})

	_, err := s.send(s.key("alice^demo"), "carol^travel", `{}`, func(m *relay.SendMessage) { m.SearchID = "srch_1" })
	wantCode(t, err, relay.InvalidRequest)
}

func (s *taught) exchangeWith(search relay.SearchID, from, to relay.Address) {
	s.t.Helper()
	s.end(to, s.write(from, to, search), "completed")
}

// A store that starts reads the searches from the file, and counts what was acknowledged before.
func TestASearchTeachesAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	s := mustTaught(t, func(o *db.Options) { o.Path = path })
	search := s.mustFind("alice^demo", []string{"book"}, "carol^travel")
	if _, err := s.ack(s.key("carol^travel"), s.write("alice^demo", "carol^travel", search), "completed"); err != nil {
		t.Fatal(err)
	}
	s.wantLearned("carol^travel", nil) // its time has not come
	keys := s.keys
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := &taught{&searched{}, keys}
	again.store = mustOpen(t, func(o *db.Options) { o.Path, o.Now = path, again.now; db.Learns(o, 90*24*time.Hour) })
	for end := time.Now().Add(time.Minute); len(again.learned("carol^travel").Words) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the exchange before the restart is not counted")
		}
	}
	again.exchangeWith(search, "alice^demo", "carol^travel")
	again.wantLearned("carol^travel", map[string]float64{"book": 2})
}

func TestFailuresTakeBackWhatTheSenderHasGiven(t *testing.T) {
	s := mustTaught(t)
	s.exchange("alice^demo", "carol^travel", "completed", "book", "flight")
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	s.exchange("alice^demo", "carol^travel", "failed", "book", "hotel")
	s.wantLearned("carol^travel", map[string]float64{"book": 1, "flight": 1})
	// Nonsense that carol rejects takes nothing of what others have given.
	s.exchange("mallory^evil", "carol^travel", "rejected", "book", "flight")
	s.wantLearned("carol^travel", map[string]float64{"book": 1, "flight": 1})
	s.exchange("alice^demo", "carol^travel", "rejected", "book", "flight")
	s.wantLearned("carol^travel", nil)
	if l := s.learned("carol^travel"); l.Exchanges != 0 {
		t.Errorf("%v exchanges are left", l.Exchanges)
	}
	s.exchange("alice^demo", "carol^travel", "failed", "book")
	s.wantLearned("carol^travel", nil) // never below 0
}

func (s *taught) number(query string) (n int) {
	s.t.Helper()
	d := byHand(s.t, s.Path())
	defer d.Close()
	if err := d.QueryRow(query).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// The command, the profile and the removal of the Mecha remove learned words. A reader that follows the changes
// sees that.
func TestWhatWasLearnedIsForgotten(t *testing.T) {
	s := mustTaught(t)
	changed := make(chan struct{}, 1)
	s.OnEntries(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	last := relay.Position(0)
	wantChange := func(what string, words int) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatalf("%s: nobody was told", what)
		}
		after, err := db.LearningOf(s.DB).Learned(ctx, last, 10)
		if err != nil || len(after) != 1 || after[0].Mecha != s.key("carol^travel").Mecha.Number || len(after[0].Words) != words {
			t.Fatalf("%s: after %d, learned %+v, %v; want %d words", what, last, after, err, words)
		}
		last = after[0].Position
	}
	drain := func() {
		select {
		case <-changed:
		default:
		}
	}
	profile := func(body string) {
		t.Helper()
		p, err := relay.ReadProfile([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		k := s.key("carol^travel")
		if err := s.PutProfile(&relay.PutProfile{At: s.now(), Key: k.Number, Address: k.Mecha.Address, Profile: p.Stored()}); err != nil {
			t.Fatal(err)
		}
	}
	s.key("carol^travel")
	s.key("alice^demo")
	drain()
	s.exchange("alice^demo", "carol^travel", "completed", "book", "flight")
	wantChange("an exchange", 2)
	if err := db.LearningOf(s.DB).ForgetLearned(&relay.ForgetLearned{At: s.now(), Address: "carol^travel"}); err != nil {
		t.Fatal(err)
	}
	wantChange("forget", 0)
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	wantChange("an exchange", 1)
	profile(`{"learn":false}`)
	wantChange("a profile that wants no learning", 0)
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	s.wantLearned("carol^travel", nil)
	profile(`{"description":"travels"}`)
	drain()
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	wantChange("an exchange", 1)
	drain()
	if err := s.RemoveMecha(&relay.RemoveMecha{At: s.now(), Address: "carol^travel"}); err != nil {
		t.Fatal(err)
	}
	wantChange("removal", 0)
	if n := s.number("SELECT count(*) FROM learned"); n != 0 {
		t.Errorf("%d words of a removed Mecha are in the file", n)
	}
	wantCode(t, db.LearningOf(s.DB).ForgetLearned(&relay.ForgetLearned{At: s.now(), Address: "nobody^here"}), relay.MechaNotFound)
}

// With retention, what was learned of a Mecha goes when every message is younger than its last
// exchange.
func TestWhatWasLearnedGoesWithTheMessages(t *testing.T) {
	s := mustTaught(t, func(o *db.Options) { o.Serve = false }) // it removes nothing on its own
	prune := func() {
		t.Helper()
		at := s.now()
		if _, err := s.Apply(&relay.PruneMessages{At: at, Before: relay.PositionAt(at.Add(-time.Hour)), Limit: 100}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(&relay.PruneUnused{At: at, EmptySince: at.Add(-time.Hour), Limit: 100}); err != nil {
			t.Fatal(err)
		}
	}
	s.minutes.Store(int64(time.Until(s.now())/-time.Minute) + 60) // keys have the time of the machine; no position is older
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	s.minutes.Add(90)
	s.exchange("alice^demo", "dave^travel", "completed", "book")
	s.write("alice^demo", "dave^travel", "")
	s.wantLearned("carol^travel", map[string]float64{"book": 1})
	prune()
	s.wantLearned("carol^travel", nil)
	s.wantLearned("dave^travel", map[string]float64{"book": 1})
	s.minutes.Add(180)
	s.write("alice^demo", "dave^travel", "")
	prune()
	s.wantLearned("dave^travel", nil)
}

// Without a half-life nothing is kept of searches, counted or given. Exchanges that an earlier
// process has not counted are removed.
func TestAStoreThatDoesNotLearn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	s := mustTaught(t, func(o *db.Options) { o.Path = path })
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	before := s.mustFind("alice^demo", []string{"book"}, "carol^travel")
	if _, err := s.ack(s.key("carol^travel"), s.write("alice^demo", "carol^travel", before), "completed"); err != nil {
		t.Fatal(err)
	}
	if n := s.number("SELECT count(*) FROM exchange"); n != 1 {
		t.Fatalf("%d exchanges wait to be counted, want 1", n)
	}
	keys := s.keys
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	off := &taught{&searched{}, keys}
	off.store = mustOpen(t, func(o *db.Options) { o.Path, o.Now = path, off.now })
	for end := time.Now().Add(time.Minute); off.number("SELECT count(*) FROM exchange") > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an exchange that was not counted stays")
		}
	}
	off.exchange("alice^demo", "carol^travel", "completed", "hotel")
	off.exchangeWith(before, "alice^demo", "carol^travel")
	if l := off.learned("carol^travel"); len(l.Words) != 0 {
		t.Errorf("learned %+v", l)
	}
	for query, want := range map[string]int{"SELECT count(*) FROM learned": 1, "SELECT count(*) FROM message WHERE sought IS NOT NULL": 0, "SELECT count(words) FROM search": 2} {
		if n := off.number(query); n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
}

// A message keeps the words until its end, whatever that is.
func TestWordsLeaveAMessageAtItsEnd(t *testing.T) {
	s := mustTaught(t, func(o *db.Options) { o.MaxBroadcast = 10 })
	kept := func(what string, want int) {
		t.Helper()
		if n := s.number("SELECT count(*) FROM message WHERE sought IS NOT NULL"); n != want {
			t.Errorf("%s: %d messages have words, want %d", what, n, want)
		}
	}
	search := s.mustFind("alice^demo", []string{"book"}, "carol^travel")
	id := s.write("alice^demo", "carol^travel", search)
	kept("pending", 1)
	s.end("carol^travel", id, "rejected")
	kept("rejected", 0)
	s.mustSend(s.key("alice^demo"), "carol^travel", `{}`, func(m *relay.SendMessage) {
		m.At, m.SearchID, m.ExpiresAt = s.now(), search, s.now().Add(time.Minute)
	})
	kept("pending", 1)
	if _, err := s.Apply(&relay.ExpireDue{At: s.now().Add(2 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	kept("expired", 0)
	s.key("dave^demo")
	s.mustSend(s.key("alice^demo"), "*^demo", `{}`, func(m *relay.SendMessage) { m.SearchID = search })
	kept("to a crew", 0)
}
