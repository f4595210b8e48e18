package search

import (
	"slices"
	"strings"
	"sync"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// columns hold in memory, by segment, the lengths of the documents' texts, which
// every search needs, and the documents' facet values as numbers: a search with
// facets would otherwise spend most of its time reading the values from the
// index. Segments never change, so a segment's columns are read by the first
// search that needs them and dropped after the segment has gone. They take about
// 60 bytes for each profile. Any goroutine may use columns.
type columns struct {
	mu       sync.Mutex
	lengths  map[uint64][]uint32 // of the combined texts, by the segment's id
	mechas   map[uint64][]uint32 // numbers of the Mechas, by the segment's id
	newest   *directory
	segments map[uint64]*facetColumns
	values   [len(facets)][]string          // by number
	numbers  [len(facets)]map[string]uint32 // by value
}

// facetColumns are the columns of one segment.
type facetColumns [len(facets)]column

// A column has the values of document n at starts[n] up to starts[n+1].
type column struct {
	starts []uint32
	values []uint32
}

func (c *column) valuesOf(n uint64) []uint32 { return c.values[c.starts[n]:c.starts[n+1]] }

// lengthsOf returns the lengths of the combined texts in a view, by segment.
func (c *columns) lengthsOf(v *view) (list [][]uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.lengths
	for at, seg := range v.segments {
		lengths := old[seg.Id()]
		if lengths == nil {
			if lengths, err = v.readLengths(at); err != nil {
				return nil, err
			}
		}
		list = append(list, lengths)
	}
	if len(old) != len(list) || slices.ContainsFunc(v.segments, func(seg *scorch.SegmentSnapshot) bool {
		return old[seg.Id()] == nil
	}) {
		c.lengths = map[uint64][]uint32{}
		for at, seg := range v.segments {
			c.lengths[seg.Id()] = list[at]
		}
	}
	return list, nil
}

func (v *view) readLengths(at int) ([]uint32, error) {
	lengths := make([]uint32, v.segments[at].FullSize())
	err := v.eachMetaOf(at, func(n int, m meta) { lengths[n] = uint32(m.length) })
	return lengths, err
}

// facetsOf returns the facet columns of a search's view, in the order of its
// segments, and the values by number. If the time expires, the last segments'
// columns are missing.
func (c *columns) facetsOf(s *searcher) (list []*facetColumns, values [len(facets)][]string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(s.v.segments, func(seg *scorch.SegmentSnapshot) bool { return c.segments[seg.Id()] == nil }) {
		c.dropUnused(s.v)
	}
	for at, seg := range s.v.segments {
		f := c.segments[seg.Id()]
		if f == nil {
			if s.clock.over() {
				break
			}
			if f, err = c.readFacets(s.v, at); err != nil {
				return nil, values, err
			}
		}
		list = append(list, f)
	}
	return list, c.values, nil
}

// readFacets reads the facet columns of a segment.
func (c *columns) readFacets(v *view, at int) (*facetColumns, error) {
	seg := v.segments[at]
	source, ok := seg.Segment().(segment.DocValueVisitable)
	if !ok {
		return nil, errColumns
	}
	p := new(facetColumns)
	visit := func(_ string, value []byte) {
		for f := range facets {
			if prefix := facets[f].prefix; strings.HasPrefix(string(value), prefix) {
				p[f].values = append(p[f].values, c.numberOf(f, value[len(prefix):]))
			}
		}
	}
	names := []string{inFilter}
	var state segment.DocVisitState
	for n := range uint64(seg.FullSize()) {
		for f := range p {
			p[f].starts = append(p[f].starts, uint32(len(p[f].values)))
		}
		var err error
		if state, err = source.VisitDocValues(n, names, visit, state); err != nil {
			return nil, err
		}
	}
	for f := range p {
		p[f].starts = append(p[f].starts, uint32(len(p[f].values)))
	}
	c.segments[seg.Id()] = p
	return p, nil
}

func (c *columns) numberOf(facet int, value []byte) uint32 {
	n, ok := c.numbers[facet][string(value)]
	if !ok {
		n = uint32(len(c.values[facet]))
		text := string(value)
		c.numbers[facet][text] = n
		c.values[facet] = append(c.values[facet], text)
	}
	return n
}

// dropUnused drops the columns of segments that the view does not have. It drops
// everything, the numbers included, if most values may belong to removed profiles.
func (c *columns) dropUnused(v *view) {
	inView := map[uint64]bool{}
	for _, seg := range v.segments {
		inView[seg.Id()] = true
	}
	used := [len(facets)]int{}
	for id, p := range c.segments {
		if !inView[id] {
			delete(c.segments, id)
			continue
		}
		for f := range p {
			used[f] += len(p[f].values)
		}
	}
	const spare = 10_000 // values of removed profiles that may stay
	reset := c.segments == nil
	for f := range used {
		reset = reset || len(c.values[f]) > 2*used[f]+spare
	}
	if !reset {
		return
	}
	c.segments = map[uint64]*facetColumns{}
	for f := range facets {
		c.values[f], c.numbers[f] = nil, map[string]uint32{}
	}
}
