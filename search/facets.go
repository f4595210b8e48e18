package search

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// maxFacetValues is the maximum number of values that are returned for a facet, the most
// frequent first.
const maxFacetValues = 100

// facets are the names of the facets, and the prefixes of their values in inFilter.
var facets = [...]struct{ name, prefix string }{
	{FacetCrew, filterCrew}, {FacetTags, filterTag}, {FacetLanguages, filterLanguage},
}

// facetOf returns the index of the facet with this name in facets, or -1.
func facetOf(name string) int {
	for i := range facets {
		if facets[i].name == name {
			return i
		}
	}
	return -1
}

// countFacets counts the values of the requested facets in the documents, whose
// numbers must ascend.
func (s *searcher) countFacets(docs []uint64) (map[string][]FacetCount, error) {
	segments, values, err := s.v.columns.facetsOf(s)
	if err != nil {
		return nil, err
	}
	list := make(map[string][]FacetCount, len(s.req.Facets))
	for _, name := range s.req.Facets {
		f := facetOf(name)
		list[name] = s.countFacet(docs, segments, f, values[f])
	}
	return list, nil
}

var countPool = sync.Pool{New: func() any { return new([]uint32) }}

func (s *searcher) countFacet(docs []uint64, segments []*facetColumns, facet int, values []string) []FacetCount {
	buffer := countPool.Get().(*[]uint32)
	defer countPool.Put(buffer)
	*buffer = slices.Grow((*buffer)[:0], len(values))[:len(values)]
	counts := *buffer
	clear(counts)
	for at, columns := range segments {
		end, _ := slices.BinarySearch(docs, s.v.offsets[at]+uint64(s.v.segments[at].FullSize()))
		for _, n := range docs[:end] {
			for _, value := range columns[facet].valuesOf(n - s.v.offsets[at]) {
				counts[value]++
			}
		}
		docs = docs[end:]
	}
	return mostFrequent(counts, values)
}

// mostFrequent lists the values with counts above 0, the most frequent first.
// There may be many more than maxFacetValues, so they are not all sorted.
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
