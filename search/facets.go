package search

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// maxFacetValues bounds the values of one facet: the most frequent are given.
const maxFacetValues = 100

// facets are the facets and the prefixes of their values in inFilter.
var facets = [...]struct{ name, prefix string }{
	{FacetCrew, filterCrew}, {FacetTags, filterTag}, {FacetLanguages, filterLanguage},
}

// facetOf is the number of a facet, -1 if there is none of that name.
func facetOf(name string) int {
	for i := range facets {
		if facets[i].name == name {
			return i
		}
	}
	return -1
}

// countFacets counts the values of the facets over the documents, whose
// numbers must ascend.
func (s *searcher) countFacets(docs []uint64) (map[string][]FacetCount, error) {
	parts, values, err := s.v.columns.of(s)
	if err != nil {
		return nil, err
	}
	list := make(map[string][]FacetCount, len(s.req.Facets))
	for _, name := range s.req.Facets {
		f := facetOf(name)
		list[name] = s.countFacet(docs, parts, f, values[f])
	}
	return list, nil
}

var countPool = sync.Pool{New: func() any { return new([]uint32) }}

// countFacet counts by the numbers of the values.
func (s *searcher) countFacet(docs []uint64, parts []*part, facet int, values []string) []FacetCount {
	buffer := countPool.Get().(*[]uint32)
	defer countPool.Put(buffer)
	*buffer = slices.Grow((*buffer)[:0], len(values))[:len(values)]
	counts := *buffer
	clear(counts)
	for at, p := range parts {
		end, _ := slices.BinarySearch(docs, s.v.offsets[at]+uint64(s.v.segments[at].FullSize()))
		for _, n := range docs[:end] {
			for _, value := range p[facet].valuesOf(n - s.v.offsets[at]) {
				counts[value]++
			}
		}
		docs = docs[end:]
	}
	return mostFrequent(counts, values)
}

// mostFrequent lists the values that are there, the most frequent first. There
// may be many more than are wanted, so they are not all sorted.
func mostFrequent(counts []uint32, values []string) []FacetCount {
	compare := func(a, b FacetCount) int {
		if a.Count != b.Count {
			return cmp.Compare(b.Count, a.Count)
		}
		return strings.Compare(a.Value, b.Value)
	}
	list, least := []FacetCount{}, 1
	for i, n := range counts {
		if int(n) < least {
			continue
		}
		c := FacetCount{Value: values[i], Count: int(n)}
		at, _ := slices.BinarySearchFunc(list, c, compare)
		list = slices.Insert(list, at, c)[:min(len(list)+1, maxFacetValues)]
		if len(list) == maxFacetValues {
			least = list[len(list)-1].Count
		}
	}
	return list
}
