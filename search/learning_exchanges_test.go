package search_test

import (
	"testing"
	"time"

	"relay/db/relay"
	"relay/search"
)

// exchanges counts completed exchanges as the store does, with its shares for senders and
// crews. All are of the same hour.
type exchanges map[relay.MechaNumber]*taught

type taught struct {
	exchanges int
	words     map[string]map[relay.Address]int // by word and sender
}

var hourOfExchanges = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// complete counts one exchange with a Mecha, whom the sender found by these words.
func (x exchanges) complete(mecha relay.MechaNumber, sender relay.Address, words []string) {
	m := x[mecha]
	if m == nil {
		m = &taught{words: map[string]map[relay.Address]int{}}
		x[mecha] = m
	}
	m.exchanges++
	for _, w := range words {
		if m.words[w] == nil {
			m.words[w] = map[relay.Address]int{}
		}
		m.words[w][sender] = min(m.words[w][sender]+1, relay.SenderShare)
	}
}

// learned is what the store has of a Mecha.
func (x exchanges) learned(mecha relay.MechaNumber) relay.Learned {
	l := relay.Learned{Mecha: mecha, Exchanges: float64(x[mecha].exchanges), At: hourOfExchanges}
	for w, senders := range x[mecha].words {
		crews := map[string]int{}
		for a, n := range senders {
			crews[a.Crew()] = min(crews[a.Crew()]+n, relay.CrewShare)
		}
		sum := 0
		for _, n := range crews {
			sum += n
		}
		l.Words = append(l.Words, relay.LearnedWord{Word: w, Weight: float64(sum), At: hourOfExchanges, Crews: len(crews)})
	}
	return l
}

// teach returns all that was counted to an index, and waits until it has it.
func (x exchanges) teach(t testing.TB, s *shelf, index *search.Index) {
	t.Helper()
	for m := range x {
		s.teach(x.learned(m))
	}
	waitForLearned(t, s, index)
}

func waitForLearned(t testing.TB, s *shelf, x *search.Index) {
	t.Helper()
	s.mu.Lock()
	last := s.taught
	s.mu.Unlock()
	x.Wake()
	until(t, x, "it has what was learned", func(p search.Progress) bool { return p.Ready && p.Boosted >= last })
}

// wordsOfQuery are the words by which the ranking learns from a query.
func wordsOfQuery(t testing.TB, x *search.Index, query string) []string {
	t.Helper()
	return mustSearch(t, x, search.Request{Query: clipQuery(query), Limit: 1}).Words
}
