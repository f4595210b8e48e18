package search_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// The columns of each segment in memory follow the index: facets and totals count
// the profiles as they are now, whatever comes, changes and goes between searches and
// during them.
func TestFacetsFollowChanges(t *testing.T) {
	t.Parallel()
	s := newShelf()
	s.page = 40
	x := mustFollow(t, scratch.Dir(t), s)
	tags := map[relay.MechaNumber]string{}
	put := func(id, round int) {
		e := mecha(relay.MechaNumber(id), fmt.Sprintf("m%d^crew%d", id, id%3), "lamps and ladders")
		e.Tags = []string{fmt.Sprintf("tag%d", (id+round)%7)}
		s.put(e)
		tags[e.Number] = e.Tags[0]
	}
	for round := range 12 {
		for id := 1; id <= 200; id++ {
			switch {
			case round == 0 || id%(round+2) == 0:
				put(id, round)
			case id%(round+9) == 0:
				s.remove(relay.MechaNumber(id))
				delete(tags, relay.MechaNumber(id))
			}
		}
		stop := searchUntil(x)
		x.Wake()
		waitFor(t, x, s.last)
		stop()

		want := map[string]int{}
		for _, tag := range tags {
			want[tag]++
		}
		r := mustSearch(t, x, search.Request{Query: "ladder", Facets: []string{search.FacetTags, search.FacetCrew}})
		if r.Total != len(tags) || len(r.Facets[search.FacetTags]) != len(want) || len(r.Facets[search.FacetCrew]) != 3 {
			t.Fatalf("round %d: total %d, want %d; facets %v", round, r.Total, len(tags), r.Facets)
		}
		for _, f := range r.Facets[search.FacetTags] {
			if f.Count != want[f.Value] {
				t.Errorf("round %d: %s counts %d, want %d", round, f.Value, f.Count, want[f.Value])
			}
		}
	}
}

// searchUntil searches with facets until the function that it returns is called.
func searchUntil(x *search.Index) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				x.Search(ctx, search.Request{Query: "lamp", Facets: []string{search.FacetTags}})
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}
