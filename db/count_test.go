package db_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

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
			for n := range 12 {
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
			"SELECT max(length(counts)) > 1800 FROM learned":                                                                             0,
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
	want, wantExchanges := play(func(s *taught, ended int) { counting(s, &relay.CountExchanges{Most: 1}) })
	if len(want[0]) < 100 {
		t.Fatalf("only %d words are known", len(want[0]))
	}
	for name, count := range map[string]func(*taught, int){
		"some at a time": func(s *taught, ended int) {
			for i := 0; ended == 120 && i < 20; i++ {
				counting(s, &relay.CountExchanges{Most: 7})
			}
		},
		"all at once": func(s *taught, ended int) {
			if ended == 120 {
				counting(s, &relay.CountExchanges{Most: 1000})
			}
		},
		"the last Mecha first": func(s *taught, ended int) {
			if ended%40 == 0 {
				last := s.key(recipients[2]).Mecha.Number
				counting(s, &relay.CountExchanges{Most: 1000, From: last}, &relay.CountExchanges{Most: 50, From: last - 1}, &relay.CountExchanges{Most: 1000})
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
		s.key("dave^travel") // before each write the servants look at the clock
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
				for n := range 15 {
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
