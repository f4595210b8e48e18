package search_test

import (
	"fmt"
	"os"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// The same store gives the same order with the same scores, however the index
// came to be.
func TestSameStoreSameOrder(t *testing.T) {
	t.Parallel()
	entries, queries := storeAndQueries(t)
	once := mustIndex(t, entries, 10_000)

	// In steps, with batches of their own size each, and changes on the way.
	steps := newShelf()
	stepwise := mustFollow(t, scratch.Dir(t), steps)
	for i, e := range entries {
		first := e
		if i%7 == 0 {
			first.Description = "something else at first, which takes some more words than it will in the end"
		}
		steps.put(first)
		if i%(len(entries)/7) == 0 {
			stepwise.Wake()
			until(t, stepwise, "the step is taken", func(p search.Progress) bool { return p.Revision >= steps.last })
		}
	}
	for i, e := range entries {
		if i%7 == 0 {
			steps.put(e)
		}
	}
	stepwise.Wake()
	waitFor(t, stepwise, steps.last)

	// With others among them that are gone again.
	crowded := newShelf()
	others := newGenerator(t, 99)
	for i, e := range entries {
		crowded.put(e)
		if i%2 == 0 {
			crowded.put(others.entry(1_000_000 + i))
		}
	}
	crowded.page = len(entries) / 5
	deleted := mustFollow(t, scratch.Dir(t), crowded)
	waitFor(t, deleted, crowded.last)
	for i := range entries {
		if i%2 == 0 {
			crowded.remove(relay.MechaNumber(1_000_000 + i))
		}
	}
	deleted.Wake()
	waitFor(t, deleted, crowded.last)

	for _, q := range queries {
		want := topTen(t, once, q)
		if got := topTen(t, stepwise, q); got != want {
			t.Errorf("%q: step by step\n%s\nin one batch\n%s", q, got, want)
		}
		if got := topTen(t, deleted, q); got != want {
			t.Errorf("%q: after deletions\n%s\nin one batch\n%s", q, got, want)
		}
	}
	t.Logf("%d profiles, %d queries", len(entries), len(queries))
}

func topTen(t *testing.T, x *search.Index, q string) string {
	r := mustSearch(t, x, search.Request{Query: q, Limit: 10, Facets: []string{"crew"}})
	s := fmt.Sprintln(r.Total, r.CorrectedQuery, r.Facets)
	for _, h := range r.Hits {
		s += fmt.Sprintf("%s %.6f %v\n", h.Address, h.Score, h.Matched)
	}
	return s
}

// storeAndQueries returns profiles and queries of the sets, or generated ones.
func storeAndQueries(t *testing.T) ([]relay.Entry, []string) {
	var queries []string
	if dir := os.Getenv("RELAY_DISCOVERY_DATA"); dir != "" {
		entries := loadProfiles(t, dir, "nav")
		for _, set := range []string{"nav", "sealtools", "stabletoolbench", "metatool-typo"} {
			list := loadQueries(t, dir, set)
			for i := 0; i < len(list); i += max(len(list)/120, 1) {
				queries = append(queries, clipQuery(list[i].Text))
			}
		}
		return entries, queries
	}
	g := newGenerator(t, 1)
	entries := g.entries(amount(t, 100, 1000))
	for i := range amount(t, 20, 100) {
		queries = append(queries, g.text(1+i%9))
	}
	for i := 0; i < len(entries); i += 50 {
		queries = append(queries, string(entries[i].Address)[:12])
	}
	return entries, queries
}
