package search_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// learningQuery is what is searched for here. "fare" is in no profile.
const learningQuery = "cheap fare to lisbon"

var (
	// good and bad have texts of the same worth; better matches by its text.
	good   = mecha(9001, "good^north", "Plans trips and reserves seats.")
	bad    = mecha(9002, "bad^south", "Plans trips and reserves seats.")
	better = mecha(9003, "better^west", "Sells a cheap ticket to Lisbon.")
	mute   = mecha(9004, "mute^east", "Bakes rye bread.")
	// weak has one word of the query, among many others.
	weak = mecha(9007, "weak^east", "Bakes rye bread, wheat bread, rolls, cakes, tarts, pies and biscuits, by recipes from Lisbon and elsewhere.")
)

// marketplace is an index of a generated directory and these four, with its shelf.
func marketplace(t *testing.T, more ...relay.Entry) (*shelf, *search.Index) {
	t.Helper()
	g := newGenerator(t, 7)
	s := newShelf(append(append(g.entries(amount(t, 100, 300)), good, bad, better, mute, weak), more...)...)
	x := mustFollow(t, scratch.Dir(t), s)
	waitFor(t, x, s.last)
	return s, x
}

// rankOf is the rank of a Mecha for the query, 0 if it is not found.
func rankOf(t *testing.T, x *search.Index, e relay.Entry, query string) int {
	t.Helper()
	r := mustSearch(t, x, search.Request{Query: query, Limit: 100, Caller: "asker^elsewhere"})
	return slices.Index(addresses(r), string(e.Address)) + 1
}

// senders makes the addresses of so many keys of each crew.
func senders(keys int, crews ...string) (list []relay.Address) {
	for i := range keys {
		for _, crew := range crews {
			list = append(list, relay.Address(fmt.Sprintf("key%d^%s", i, crew)))
		}
	}
	return list
}

// honest are 20 exchanges with the good Mecha, from five crews.
func honest(words []string) exchanges {
	x := exchanges{}
	for _, a := range senders(4, "crew1", "crew2", "crew3", "crew4", "crew5") {
		x.complete(good.Number, a, words)
	}
	return x
}

// A Mecha is found by words that it was found right for, though its text has none of them,
// whatever the order and the facets; and no longer when they are forgotten.
func TestFoundByWhatWasLearned(t *testing.T) {
	t.Parallel()
	s, x := marketplace(t)
	if n := rankOf(t, x, mute, "cheap fare"); n != 0 {
		t.Fatalf("before: rank %d", n)
	}
	made := exchanges{}
	for _, a := range senders(4, "crew1", "crew2", "crew3") {
		made.complete(mute.Number, a, wordsOfQuery(t, x, "cheap fare"))
	}
	made.teach(t, s, x)
	r := mustSearch(t, x, search.Request{Query: "cheap fare", Explain: true, Limit: 100})
	i := slices.Index(addresses(r), "mute^east")
	if i < 0 {
		t.Fatalf("found %v", addresses(r))
	}
	if e := r.Hits[i].Explanation; e.Learned <= 0 || e.Learned != e.Raw || e.Exchanges != 12 {
		t.Errorf("explained as %+v", e)
	}
	for _, sort := range []search.Sort{search.ByRecent, search.ByName} {
		if other := mustSearch(t, x, search.Request{Query: "cheap fare", Sort: sort, Limit: 100}); other.Total != r.Total || !slices.Contains(addresses(other), "mute^east") {
			t.Errorf("by %s: %d matches, %v; by relevance %d", sort, other.Total, addresses(other), r.Total)
		}
	}
	if filtered := mustSearch(t, x, search.Request{Query: "cheap fare", Filter: search.Filter{Crew: []string{"north"}}}); filtered.Total != 0 {
		t.Errorf("a filter for another crew finds %v", addresses(filtered))
	}
	s.teach(relay.Learned{Mecha: mute.Number})
	waitForLearned(t, s, x)
	if n := rankOf(t, x, mute, "cheap fare"); n != 0 {
		t.Errorf("after it was forgotten: rank %d", n)
	}
}

// Learned words make nobody visible, and the learned words of hidden Mechas change no
// answer for callers who may not see them.
func TestLearnedStaysHidden(t *testing.T) {
	t.Parallel()
	hidden, unlisted := mecha(9005, "hidden^south", "Plans trips."), mecha(9006, "unlisted^south", "Plans trips.")
	hidden.Visibility, unlisted.Visibility = relay.CrewOnly, relay.Unlisted
	s, x := marketplace(t, hidden, unlisted)
	words := wordsOfQuery(t, x, learningQuery)
	honest(words).teach(t, s, x)
	request := search.Request{Query: learningQuery, Limit: 100, Explain: true, Caller: "asker^elsewhere", Facets: []string{"crew"}}
	said := func() string {
		r := mustSearch(t, x, request)
		text := fmt.Sprintln(r.Total, r.Facets)
		for _, h := range r.Hits {
			text += fmt.Sprintf("%s %v %+v\n", h.Address, h.Score, *h.Explanation)
		}
		return text
	}
	before := said()
	made := honest(words)
	for _, a := range senders(50, "crew1", "crew2", "crew3", "crew4") {
		made.complete(hidden.Number, a, words)
		made.complete(unlisted.Number, a, words)
	}
	made.teach(t, s, x)
	if after := said(); after != before {
		t.Errorf("what was learned of hidden Mechas shows:\n%s\nbefore:\n%s", after, before)
	}
	request.Caller = "friend^south"
	if !strings.Contains(said(), "hidden^south") {
		t.Error("its own crew does not find it")
	}
}

// Nothing that was learned lifts a Mecha above an exact address, name or skill, or above a
// name with one letter wrong; and no Mecha without exchanges gets a lower score.
func TestLearnedLiftsNothingAboveExactMatches(t *testing.T) {
	t.Parallel()
	named, skilled := mecha(9005, "lisbonfares^acme", ""), mecha(9006, "sam^acme", strings.Repeat("Bakes bread, rolls and cakes. ", 30))
	// A query of so many words is not compared with names, so only the skill's own tier holds it.
	const longSkill = "Cheapest night train fares between Lisbon, Porto and Faro"
	skilled.Skills = []relay.Skill{{ID: "fares", Name: "Fare hunting"}, {ID: "night", Name: longSkill}}
	s, x := marketplace(t, named, skilled)
	queries := map[string]string{"lisbonfares": "lisbonfares^acme", "lisbonfares^acme": "lisbonfares^acme",
		"lisbonfaras": "lisbonfares^acme", "lisbonfar": "lisbonfares^acme", "fare hunting": "sam^acme", longSkill: "sam^acme"}
	scores := map[string]float64{}
	made := exchanges{}
	for q := range queries {
		for _, h := range mustSearch(t, x, search.Request{Query: q, Limit: 100}).Hits {
			scores[q+string(h.Address)] = h.Score
		}
		for range 3 {
			for _, a := range senders(20, "crew1", "crew2", "crew3", "crew4") {
				made.complete(bad.Number, a, append(wordsOfQuery(t, x, q), "lisbonfares", "lisbonfaras", "lisbonfar"))
			}
		}
	}
	made.teach(t, s, x)
	for q, want := range queries {
		r := mustSearch(t, x, search.Request{Query: q, Limit: 100})
		if got := addresses(r); got[0] != want || !slices.Contains(got, "bad^south") {
			t.Errorf("%q finds %v", q, got)
		}
		for _, h := range r.Hits {
			if h.Address != bad.Address && h.Score < scores[q+string(h.Address)] {
				t.Errorf("%q: the score of %s fell from %v to %v", q, h.Address, scores[q+string(h.Address)], h.Score)
			}
		}
	}
}

// The same counts give the same order and scores, in whatever order they came, even after
// the index was lost; and the clock does not matter.
func TestSameCountsSameOrder(t *testing.T) {
	t.Parallel()
	g := newGenerator(t, 3)
	entries := g.entries(amount(t, 150, 1000))
	var queries []string
	for i := range 40 {
		queries = append(queries, g.text(2+i%6))
	}
	final := map[relay.MechaNumber]relay.Learned{}
	for i := range entries {
		final[entries[i].Number] = g.lesson(i+1, 30)
	}
	once := newShelf(entries...)
	for _, l := range final {
		once.teach(l)
	}
	x := mustFollow(t, scratch.Dir(t), once)
	waitForLearned(t, once, x)

	// In steps, each Mecha with other counts at first, and some that are forgotten.
	steps := newShelf(entries...)
	steps.page = 37
	y := mustFollow(t, scratch.Dir(t), steps)
	for _, part := range [][]relay.Entry{entries, entries[:len(entries)/2]} {
		for i := range part {
			steps.teach(g.lesson(i+1, 20))
		}
		waitForLearned(t, steps, y)
	}
	steps.teach(relay.Learned{Mecha: entries[0].Number})
	for i := len(entries) - 1; i >= 0; i-- {
		steps.teach(final[entries[i].Number])
		if i%50 == 0 {
			waitForLearned(t, steps, y)
		}
	}
	waitForLearned(t, steps, y)
	lifted := 0
	for _, q := range queries {
		want := topTen(t, x, q)
		if got := topTen(t, y, q); got != want {
			t.Errorf("%q: step by step\n%s\nat once\n%s", q, got, want)
		}
		for _, h := range mustSearch(t, x, search.Request{Query: q, Explain: true}).Hits {
			if h.Explanation.Learned > 0 {
				lifted++
			}
		}
	}
	if lifted == 0 {
		t.Error("nothing was learned")
	}
}

// Counts fade by the half-life, as of the last exchange of all.
func TestLearnedFades(t *testing.T) {
	t.Parallel()
	s, x := marketplace(t)
	teach := func(e relay.Entry, age time.Duration) {
		l := relay.Learned{Mecha: e.Number, Exchanges: 8, At: hourOfExchanges.Add(-age)}
		for _, w := range wordsOfQuery(t, x, learningQuery) {
			l.Words = append(l.Words, relay.LearnedWord{Word: w, Weight: 8, At: l.At, Crews: 4})
		}
		s.teach(l)
	}
	teach(good, 0)
	teach(bad, 2*relay.DefaultHalfLife)
	waitForLearned(t, s, x)
	if e := explained(t, x, bad, learningQuery); e.Exchanges != 2 || e.Learned <= 0 || e.Learned >= explained(t, x, good, learningQuery).Learned {
		t.Errorf("after two half-lives: %+v", e)
	}
	teach(bad, 40*relay.DefaultHalfLife)
	waitForLearned(t, s, x)
	if rankOf(t, x, bad, learningQuery) != 0 {
		t.Error("after 40 half-lives it is still found")
	}
}

// The words by which the ranking learns are the query's, corrected, without words that
// ask, numbers and ids.
func TestLearnableWords(t *testing.T) {
	t.Parallel()
	_, x := marketplace(t)
	for q, want := range map[string][]string{
		"please help me to book cheap flights to Lisbonn":                {"book", "cheap", "flight", "lisbon"},
		"refund order 4711 of card A1B2C3 for maria@example.org, thanks": {"card", "exampl", "maria", "order", "org", "refund"},
		"can you help me?":               nil,
		strings.Repeat("x y z 1 2 ", 20): nil,
	} {
		if got := wordsOfQuery(t, x, q); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", q, got, want)
		}
	}
	g := newGenerator(t, 5)
	if n := len(wordsOfQuery(t, x, g.text(250))); n != relay.MaxSearchWords {
		t.Errorf("a long query has %d words", n)
	}
}

// The more exchanges a Mecha has completed, the greater its learned part, if those of others
// stay as they are; in directories of any size, with and without others that have the words.
func TestMoreExchangesNeverLowerTheLearnedPart(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 30} {
		for _, rivals := range []int{0, 5} {
			s := newShelf(append(newGenerator(t, 7).entries(size), good, better)...)
			x := mustFollow(t, scratch.Dir(t), s)
			waitFor(t, x, s.last)
			made := exchanges{}
			for i := range rivals {
				made.complete(better.Number, senders(1, fmt.Sprint("rival", i))[0], []string{"plan", "seat"})
			}
			last := 0.0
			for n := range 60 { // the words come from more and more crews
				a := senders(1, fmt.Sprint("crew", n/relay.SenderShare))[0]
				made.complete(good.Number, a, []string{"plan", "trip"})
				made.teach(t, s, x)
				e := explained(t, x, good, "plan a trip with a seat")
				if e.Learned < last {
					t.Errorf("%d others, %d exchanges of another: from %d to %d exchanges the learned part falls from %v to %v", size, rivals, n, n+1, last, e.Learned)
				}
				if last = e.Learned; e.Exchanges != float64(n+1) {
					t.Errorf("explained as of %v exchanges, want %d", e.Exchanges, n+1)
				}
			}
		}
	}
}

// explained returns the explanation of a Mecha that a search finds.
func explained(t *testing.T, x *search.Index, of relay.Entry, query string) *search.Explanation {
	t.Helper()
	for _, h := range mustSearch(t, x, search.Request{Query: query, Explain: true, Limit: 100}).Hits {
		if h.Address == of.Address {
			return h.Explanation
		}
	}
	t.Fatalf("%s is not found", of.Address)
	return nil
}
