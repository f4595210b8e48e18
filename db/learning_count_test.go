package db_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// Exchanges of three Mechas with many words are counted one by one, some at a time, and all at
// once, beginning with any Mecha: the same is learned. The words take several rows, in their order.
func TestHowManyAreCountedTogetherDoesNotMatter(t *testing.T) {
	recipients := []relay.Address{"carol^travel", "dave^travel", "erin^travel"}
	play := func(count func(s *taught, ended int)) (all [][]relay.LearnedWord, exchanges []float64) {
		s := mustTaught(t)
		for _, a := range recipients {
			s.key(a)
		}
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 120 {
			var words []string
			for n := range 30 {
				words = append(words, fmt.Sprintf("word%02d%03d", n, random.IntN(30)))
			}
			from := relay.Address(fmt.Sprintf("asker%d^crew%d", i%7, i%3))
			to := recipients[random.IntN(3)]
			id := s.write(from, to, s.mustFind(from, words, to))
			status := "completed"
			if i%10 == 9 {
				status = "failed"
			}
			if _, err := s.ack(s.key(to), id, status, func(a *relay.Acknowledge) { a.At = s.now() }); err != nil {
				t.Fatal(err)
			}
			count(s, i+1)
		}
		if n := s.number("SELECT count(*) FROM exchange"); n != 0 {
			t.Errorf("%d exchanges are not counted", n)
		}
		for _, a := range recipients {
			l := s.learned(a)
			all, exchanges = append(all, l.Words), append(exchanges, l.Exchanges)
		}
		if n := s.number("SELECT count(*) FROM (SELECT 1 FROM learned GROUP BY mecha HAVING count(*) < 3)"); n != 0 {
			t.Errorf("%d Mechas have less than three rows", n)
		}
		for query, want := range map[string]int{
			"SELECT max(length(counts)) > 3900 FROM learned":                                                                             0,
			"SELECT count(*) FROM learner l WHERE words <> (SELECT sum(words) FROM learned WHERE mecha = l.mecha)":                       0,
			"SELECT count(*) FROM learner l WHERE (SELECT first FROM learned WHERE mecha = l.mecha ORDER BY first LIMIT 1) <> ''":        0,
			"SELECT count(*) FROM learned WHERE first <> '' AND instr(counts, CAST(char(length(first)) || first AS BLOB)) NOT IN (0, 1)": 0,
		} {
			if n := s.number(query); n != want {
				t.Errorf("%s: %d, want %d", query, n, want)
			}
		}
		return all, exchanges
	}
	counting := func(s *taught, writes ...*relay.CountExchanges) {
		t.Helper()
		for _, w := range writes {
			w.At, w.HalfLife = s.now(), relay.DefaultHalfLife
			if _, err := s.Apply(w); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, wantExchanges := play(func(s *taught, ended int) { counting(s, &relay.CountExchanges{Limit: 1}) })
	if len(want[0]) < 100 {
		t.Fatalf("only %d words are known", len(want[0]))
	}
	for name, count := range map[string]func(*taught, int){
		"some at a time": func(s *taught, ended int) {
			for i := 0; ended == 120 && i < 20; i++ {
				counting(s, &relay.CountExchanges{Limit: 7})
			}
		},
		"all at once": func(s *taught, ended int) {
			if ended == 120 {
				counting(s, &relay.CountExchanges{Limit: 1000})
			}
		},
		"in rounds, between which and in which others end": func(s *taught, ended int) {
			if ended%10 == 0 || ended > 110 {
				counting(s, &relay.CountExchanges{Limit: 12})
			}
			for i := 0; ended == 120 && i < 20; i++ {
				counting(s, &relay.CountExchanges{Limit: 12})
			}
		},
	} {
		if got, exchanges := play(count); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(exchanges, wantExchanges) {
			t.Errorf("%s: learned %v of %v exchanges, one by one %v of %v", name, got, exchanges, want, wantExchanges)
		}
	}
}

// Few exchanges are counted soon. Many wait for others, so that each of them costs less, but not
// for long, and not if there are very many.
func TestExchangesAreCountedInTime(t *testing.T) {
	for _, c := range []struct {
		exchanges int
		after     int // seconds
		counted   bool
	}{{1, 0, false}, {1, 1, true}, {100, 1, true}, {101, 9, false}, {101, 10, true}} {
		s := mustTaught(t)
		search := s.mustFind("alice^demo", []string{"book"}, "carol^travel")
		for range c.exchanges {
			id := s.write("alice^demo", "carol^travel", search)
			if _, err := s.ack(s.key("carol^travel"), id, "completed", func(a *relay.Acknowledge) { a.At = s.now() }); err != nil {
				t.Fatal(err)
			}
		}
		s.seconds.Add(int64(c.after))
		s.key("dave^travel") // before each write the rooms look at the clock
		if waiting := s.number("SELECT count(*) FROM exchange"); (waiting == 0) != c.counted {
			t.Errorf("%d exchanges, after %d s: %d wait", c.exchanges, c.after, waiting)
		}
	}
}

// Words that failures take back leave no rows behind, but for the first one of a Mecha that has
// others.
func TestWordsThatAreTakenBackLeaveNoRows(t *testing.T) {
	s := mustTaught(t)
	s.exchange("alice^demo", "carol^travel", "completed", "aaa", "zzz")
	for round := range 3 {
		all := func(status string) {
			t.Helper()
			for i := range 20 {
				var words []string
				for n := range 30 {
					words = append(words, fmt.Sprintf("word%d-%02d-%02d", round, i, n))
				}
				s.exchange("alice^demo", "carol^travel", status, words...)
			}
		}
		all("completed")
		if n := s.number("SELECT count(*) FROM learned"); n < 3 {
			t.Fatalf("%d rows have all words", n)
		}
		all("failed")
		if l := s.learned("carol^travel"); len(l.Words) != 2 {
			t.Errorf("after round %d, %d words are known", round, len(l.Words))
		}
		if n := s.number("SELECT count(*) FROM learned WHERE words = 0 AND first <> ''"); n != 0 {
			t.Errorf("after round %d, %d rows have no words", round, n)
		}
	}
}

// asked is an exchange that has ended and is not counted: each asker searches for a word of its own.
func (s *taught) asked(n int, to relay.Address) {
	s.t.Helper()
	from := relay.Address(fmt.Sprintf("asker%d^crew%d", n, n))
	id := s.write(from, to, s.mustFind(from, []string{"book", fmt.Sprintf("word%d", n)}, to))
	if _, err := s.ack(s.key(to), id, "completed", func(a *relay.Acknowledge) { a.At = s.now() }); err != nil {
		s.t.Fatal(err)
	}
}

// countSome continues a round, or begins one.
func (s *taught) countSome(most int) {
	s.t.Helper()
	if _, err := s.Apply(&relay.CountExchanges{At: s.now(), HalfLife: relay.DefaultHalfLife, Limit: most}); err != nil {
		s.t.Fatal(err)
	}
}

// Exchanges that are forgotten during a round are not counted by it, and are nowhere in the file.
// The others are, and so are those that end meanwhile.
func TestForgettingDuringARound(t *testing.T) {
	for _, forget := range []func(s *taught) error{
		func(s *taught) error {
			return db.LearningOf(s.DB).ForgetLearned(&relay.ForgetLearned{At: s.now(), Address: "dave^travel"})
		},
		func(s *taught) error {
			return s.RemoveMecha(&relay.RemoveMecha{At: s.now(), Address: "asker2^crew2"})
		},
	} {
		s := mustTaught(t)
		s.asked(1, "carol^travel")
		s.asked(2, "dave^travel")
		s.asked(3, "erin^travel")
		s.countSome(1)
		s.wantLearned("carol^travel", map[string]float64{"book": 1, "word1": 1})
		if err := forget(s); err != nil {
			t.Fatal(err)
		}
		s.asked(4, "carol^travel")
		if n := s.number("SELECT count(*) FROM exchange WHERE instr(ended, 'word2') > 0"); n != 0 {
			t.Error("what was forgotten still waits")
		}
		for range 2 {
			s.countSome(1)
		}
		s.wantLearned("dave^travel", nil)
		s.wantLearned("erin^travel", map[string]float64{"book": 1, "word3": 1})
		s.countSome(1)
		s.wantLearned("carol^travel", map[string]float64{"book": 2, "word1": 1, "word4": 1})
		if n := s.number("SELECT (SELECT count(*) FROM exchange) + (SELECT count(*) FROM counting)"); n != 0 {
			t.Errorf("%d rows are left of the rounds", n)
		}
	}
}

// If all that a round has left is forgotten, it ends.
func TestARoundEndsWithoutTheRest(t *testing.T) {
	s := mustTaught(t)
	s.asked(1, "carol^travel")
	s.asked(2, "dave^travel")
	s.countSome(1)
	for _, a := range []relay.Address{"carol^travel", "dave^travel"} {
		if err := db.LearningOf(s.DB).ForgetLearned(&relay.ForgetLearned{At: s.now(), Address: a}); err != nil {
			t.Fatal(err)
		}
	}
	s.asked(3, "carol^travel")
	s.countSome(1)
	s.countSome(1)
	s.wantLearned("carol^travel", map[string]float64{"book": 1, "word3": 1})
}

// A server that ends in a round leaves the rest, and what ended meanwhile, to the next one, which counts
// each of them once.
func TestARoundSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	s := mustTaught(t, func(o *db.Options) { o.Path = path })
	recipients := []relay.Address{"carol^travel", "dave^travel", "erin^travel"}
	for i, a := range recipients {
		s.asked(2*i+1, a)
		s.asked(2*i+2, a)
	}
	s.countSome(2)
	s.asked(10, "carol^travel")
	if n := s.number("SELECT count(*) FROM exchange"); n != 7 {
		t.Fatalf("%d rows wait, want 7", n)
	}
	keys := s.keys
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := &taught{&searched{}, keys}
	again.store = mustOpen(t, func(o *db.Options) { o.Path, o.Now = path, again.now; db.Learns(o, relay.DefaultHalfLife) })
	again.seconds.Store(1)
	for end := time.Now().Add(time.Minute); again.number("SELECT count(*) FROM exchange") > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what the server before has left is not counted")
		}
	}
	for _, w := range []struct {
		of    relay.Address
		times float64
		words int
	}{{"carol^travel", 3, 4}, {"dave^travel", 2, 3}, {"erin^travel", 2, 3}} {
		if l := again.learned(w.of); len(l.Words) != w.words || l.Words[0].Weight != w.times {
			t.Errorf("%s: learned %+v, want %d words, the first %v times", w.of, l.Words, w.words, w.times)
		}
	}
}

// A share that is full stays as it is within its hour, and counts again once it has faded. Nobody is told of a
// count that changes nothing.
func TestAFullShareChangesNothing(t *testing.T) {
	s := mustTaught(t)
	for range relay.SenderShare {
		s.exchange("alice^demo", "carol^travel", "completed", "book")
	}
	before := s.learned("carol^travel").Position
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	if after := s.learned("carol^travel").Position; after != before {
		t.Errorf("the position has moved from %d to %d", before, after)
	}
	s.minutes.Add(90 * 24 * 60)
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	s.wantLearned("carol^travel", map[string]float64{"book": 2.5})
}
