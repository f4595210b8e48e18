package search_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// An answer, its scores and explanations too, is the same whatever words are in profiles
// that the caller may not see: else a word in one's own profile would reveal how many of
// them use it.
func TestHiddenWordsDoNotShowInScores(t *testing.T) {
	t.Parallel()
	index := func(secret string) *search.Index {
		var all []relay.Entry
		for i := range 40 {
			open := mecha(relay.MechaNumber(1+i), fmt.Sprintf("m%02d^acme", i), fmt.Sprintf("quokka counting, number n%d of many", i%7))
			hidden := mecha(relay.MechaNumber(100+i), fmt.Sprintf("h%02d^secret", i), secret)
			hidden.Visibility = []relay.Visibility{relay.CrewOnly, relay.Unlisted}[i%2]
			all = append(all, open, hidden)
		}
		return mustIndex(t, all, 10)
	}
	one, other := index("quokka merger counting zeppelin works"), index("walrus taming feeding albatross pairs")
	for _, query := range []string{"quokka", "counting n3", "quokka merger", "qokka", "coun", "m03", "zeppelin", "mergr"} {
		r := search.Request{Query: query, Caller: "me^other", Explain: true, Facets: []string{"crew", "tags"}}
		a, b := mustSearch(t, one, r), mustSearch(t, other, r)
		a.TookMS, b.TookMS = 0, 0
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%q: %s\nand with other hidden words %s", query, show(a), show(b))
		}
	}
}

func show(r *search.Result) string {
	s := fmt.Sprintf("total %d, corrected %q", r.Total, r.CorrectedQuery)
	for _, h := range r.Hits[:min(len(r.Hits), 2)] {
		s += fmt.Sprintf("\n  %s %v %+v", h.Address, h.Score, *h.Explanation)
	}
	return s
}

// With no time left, fewer are found, and still none who is hidden.
func TestNoTimeAndNoSecrets(t *testing.T) {
	t.Parallel()
	x, err := search.Open(scratch.Dir(t), search.Options{Budget: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s := newShelf(mecha(1, "open^acme", "quokka"), mecha(2, "me^other", "quokka"))
	for i := range 3000 {
		e := mecha(relay.MechaNumber(100+i), fmt.Sprintf("h%04d^secret", i), "quokka")
		e.Visibility = []relay.Visibility{relay.CrewOnly, relay.Unlisted}[i%2]
		s.put(e)
	}
	done := make(chan error, 1)
	go func() { done <- x.Follow(context.Background(), s) }()
	waitFor(t, x, s.last)
	for name, r := range map[string]search.Request{
		"a filter":         {Filter: search.Filter{Exclude: []string{"nobody^here"}}},
		"sorted":           {Filter: search.Filter{Exclude: []string{"nobody^here"}}, Sort: search.ByName},
		"a query":          {Query: "quokka"},
		"inside, the crew": {Filter: search.Filter{Crew: []string{"acme", "other", "secret"}}},
	} {
		r.Caller, r.Facets = "me^other", []string{"crew"}
		f := mustSearch(t, x, r)
		if f.Total > 1 || len(f.Facets["crew"]) > 1 {
			t.Errorf("%s: total %d, facets %v", name, f.Total, f.Facets)
		}
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
