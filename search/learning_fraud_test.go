package search_test

import (
	"fmt"
	"slices"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// How far exchanges that somebody makes up lift a bad Mecha. Its text has no word of the query.
// One crew alone does not make it a match. Good is a Mecha of
// the same text with 20 honest exchanges from five crews.
func TestMadeUpExchanges(t *testing.T) {
	t.Parallel()
	for _, attack := range []struct {
		name    string
		senders []relay.Address
		rounds  int
		passes  []relay.Entry // whom the bad Mecha passes
	}{
		{"one key, once", senders(1, "south"), 1, nil},
		{"one key, 1,000 times", senders(1, "south"), 1000, nil},
		{"one crew of five keys", senders(5, "south"), 100, nil},
		{"one crew of fifty keys", senders(50, "south"), 100, nil},
		{"a ring of ten in one crew", senders(10, "south"), 10, nil},
		{"two crews of fifty keys", senders(50, "south", "other"), 100, []relay.Entry{weak, better}},
		{"a ring over five crews", senders(10, "a", "b", "c", "d", "e"), 10, []relay.Entry{weak, better, good}},
	} {
		s, x := marketplace(t)
		words := wordsOfQuery(t, x, learningQuery)
		made := honest(words)
		for range attack.rounds {
			for _, a := range attack.senders {
				made.complete(bad.Number, a, words)
			}
		}
		made.teach(t, s, x)
		r := mustSearch(t, x, search.Request{Query: learningQuery, Limit: 100, Caller: "asker^elsewhere"})
		rank := func(e relay.Entry) int { return slices.Index(addresses(r), string(e.Address)) + 1 }
		t.Logf("%-26s good %d, better text %d, weak text %d, bad %d", attack.name, rank(good), rank(better), rank(weak), rank(bad))
		if rank(good) != 1 && len(attack.passes) < 3 || (rank(bad) > 0) != (len(attack.passes) > 0) {
			t.Errorf("%s: found %v", attack.name, addresses(r))
		}
		for _, e := range []relay.Entry{good, better, weak} {
			passed := rank(bad) > 0 && rank(bad) < rank(e)
			expected := slices.ContainsFunc(attack.passes, func(o relay.Entry) bool { return o.Number == e.Number })
			if passed && !expected {
				t.Errorf("%s: the bad Mecha passes %s", attack.name, e.Address)
			}
		}
	}
}

// A crew adds words to a Mecha of good standing: it lifts it, but not above the one whom
// others have found for these words.
func TestOneCrewAddsWordsToAKnownMecha(t *testing.T) {
	t.Parallel()
	s, x := marketplace(t)
	const query = "trips: " + learningQuery // their text has a word of it
	words := wordsOfQuery(t, x, query)
	made := honest(words)
	for _, a := range senders(1, "crew1", "crew2", "crew3") {
		made.complete(bad.Number, a, []string{"rye", "bread"})
	}
	for range 100 {
		for _, a := range senders(50, "south") {
			made.complete(bad.Number, a, words)
		}
	}
	made.teach(t, s, x)
	if g, b := rankOf(t, x, good, query), rankOf(t, x, bad, query); b <= g || explained(t, x, bad, query).Learned <= 0 {
		t.Errorf("the good Mecha has rank %d, the other %d", g, b)
	}
}

// In a directory with a single crew its exchanges count. With another crew, they lift none
// above a better text and find nobody, but decide between equal texts.
func TestOnlyCrewLearns(t *testing.T) {
	t.Parallel()
	best := mecha(1, "ada^home", "Plans trips.")
	a, b := mecha(2, "bea^home", "Plans trips for schools."), mecha(3, "cleo^home", "Plans trips for schools.")
	s := newShelf(best, a, b)
	x := mustFollow(t, scratch.Dir(t), s)
	waitFor(t, x, s.last)
	made := exchanges{}
	for i := range 5 {
		made.complete(b.Number, relay.Address(fmt.Sprintf("c%d^home", i)), wordsOfQuery(t, x, "trips to lisbon by ferry"))
	}
	made.teach(t, s, x)
	first := func(query string, want ...string) {
		t.Helper()
		wantAddresses(t, mustSearch(t, x, search.Request{Query: query}), want...)
	}
	first("trips to lisbon", "cleo^home", "ada^home", "bea^home")
	first("ferry", "cleo^home")
	s.put(mecha(4, "dan^other", "Bakes rye bread."))
	x.Wake()
	waitFor(t, x, s.last)
	first("trips to lisbon", "ada^home", "cleo^home", "bea^home")
	first("ferry")
}

// A word alone finds a Mecha if two crews have reported it. Nobody learns a word by such
// a search that only one sender has reported, not even of a Mecha of good standing.
func TestAWordOfOneCrewFindsNobody(t *testing.T) {
	t.Parallel()
	s, x := marketplace(t)
	made := exchanges{}
	for _, a := range senders(1, "crew1", "crew2", "crew3") {
		made.complete(mute.Number, a, []string{"rye", "bread"})
	}
	made.complete(mute.Number, "key0^crew1", []string{"bluebird"})
	made.teach(t, s, x)
	if n := rankOf(t, x, mute, "bluebird"); n != 0 {
		t.Errorf("a word of one sender finds it at rank %d", n)
	}
	if e := explained(t, x, mute, "baker of wheat"); e.Learned != 0 || e.Exchanges != 4 {
		t.Errorf("by other words, it is explained as %+v", e)
	}
	made.complete(mute.Number, "key0^crew2", []string{"bluebird"})
	made.teach(t, s, x)
	if n := rankOf(t, x, mute, "bluebird"); n != 1 {
		t.Errorf("a word of two crews finds it at rank %d", n)
	}
}

// Words with the same hash as a word of the query count no more than that word: they pass no
// bound of a sender or a crew, and take nothing of what others have reported.
func TestWordsOfTheSameHash(t *testing.T) {
	t.Parallel()
	same := map[string][]string{
		"fare":   {"zfbjqzkbrxf", "zpnvzjwrktb", "mzzqxnchjhc", "vjnkxppjczv", "vjntjvjrfxb", "jvbvtqhchzj"},
		"lisbon": {"njtzwfvwhwz", "njtjjhqxhxz", "zfbwcwxmhnc", "jvbjvqjwxrk", "fkcmqvbqnqw", "fkcbjrbxxmp"},
		"cheap":  {"njtkkwfcqnr", "zpnkthnrvqm", "zpnztjrtctt", "vjnfcfrrzck", "jvbwmtqttzt", "qbppnrkhfjm"},
	}
	var others []string
	for word, list := range same {
		for _, w := range list {
			if search.HashTerm(w) != search.HashTerm(word) {
				t.Fatalf("%q has another hash than %q", w, word)
			}
		}
		others = append(others, list...)
	}
	s, x := marketplace(t)
	words := wordsOfQuery(t, x, learningQuery)
	honest(words).teach(t, s, x)
	learned := func() float64 {
		t.Helper()
		r := mustSearch(t, x, search.Request{Query: learningQuery, Limit: 1, Explain: true})
		if r.Hits[0].Address != good.Address {
			t.Errorf("found %v first", r.Hits[0].Address)
		}
		return r.Hits[0].Explanation.Learned
	}
	before := learned()
	made := honest(words)
	for _, a := range senders(5, "south") {
		for range relay.SenderShare {
			made.complete(good.Number, a, others)
		}
	}
	made[good.Number].exchanges = 20 // as before: how many they are is another matter
	made.teach(t, s, x)
	if after := learned(); after != before {
		t.Errorf("the learned part of the good Mecha was %v, and is %v with words of the same hashes", before, after)
	}
	for _, a := range senders(10, "south", "other") {
		for range relay.SenderShare {
			made.complete(bad.Number, a, append(words, others...))
		}
	}
	made.teach(t, s, x)
	learned() // the good Mecha is still the first
}
