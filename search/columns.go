package search

import (
	"slices"
	"strings"
	"sync"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// Columns keep the lengths of the documents' texts, which every search needs,
// and what the documents have of each facet, as numbers: to count the
// values of all found documents from the index itself is most of the work of a
// search that wants facets. A part is read when the first such search meets a
// new segment, which never changes, and dropped when the segment is gone. It
// takes some 50 bytes of memory a profile. All may use columns.
type columns struct {
	mu     sync.Mutex
	length map[uint64][]uint32 // of each document's combined text, by the id of the segment
	parts  map[uint64]*part    // by the id of the segment
	values [len(facets)][]string
	number [len(facets)]map[string]uint32 // of each value
}

// A part is the columns of one segment.
type part [len(facets)]column

// A column has the values of document n between starts n and n+1.
type column struct {
	starts []uint32
	values []uint32
}

func (c *column) valuesOf(n uint64) []uint32 { return c.values[c.starts[n]:c.starts[n+1]] }

// lengthsOf gives the lengths of the combined text in a view, by segment.
func (c *columns) lengthsOf(v *view) (list [][]uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.length
	for at, seg := range v.segments {
		lengths := old[seg.Id()]
		if lengths == nil {
			if lengths, err = v.readLengths(at); err != nil {
				return nil, err
			}
		}
		list = append(list, lengths)
	}
	if len(old) != len(list) || slices.ContainsFunc(v.segments, func(seg *scorch.SegmentSnapshot) bool { return old[seg.Id()] == nil }) {
		c.length = map[uint64][]uint32{}
		for at, seg := range v.segments {
			c.length[seg.Id()] = list[at]
		}
	}
	return list, nil
}

func (v *view) readLengths(at int) ([]uint32, error) {
	seg := v.segments[at]
	source, ok := seg.Segment().(segment.DocValueVisitable)
	if !ok {
		return nil, errColumns
	}
	lengths := make([]uint32, seg.FullSize())
	var state segment.DocVisitState
	var err error
	names := []string{inMeta}
	for n := range lengths {
		visit := func(_ string, value []byte) {
			if m, ok := parseMeta(value); ok {
				lengths[n] = uint32(m.length)
			}
		}
		if state, err = source.VisitDocValues(uint64(n), names, visit, state); err != nil {
			return nil, err
		}
	}
	return lengths, nil
}

// of gives the parts of a search's view, in the order of its segments, and what
// the numbers of the values stand for. If the clock runs out, parts are missing
// at the end.
func (c *columns) of(s *searcher) (parts []*part, values [len(facets)][]string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(s.v.segments, func(seg *scorch.SegmentSnapshot) bool { return c.parts[seg.Id()] == nil }) {
		c.drop(s.v)
	}
	for at, seg := range s.v.segments {
		p := c.parts[seg.Id()]
		if p == nil {
			if s.clock.over() {
				break
			}
			if p, err = c.read(s.v, at); err != nil {
				return nil, values, err
			}
		}
		parts = append(parts, p)
	}
	return parts, c.values, nil
}

// read makes the part of a segment.
func (c *columns) read(v *view, at int) (*part, error) {
	seg := v.segments[at]
	source, ok := seg.Segment().(segment.DocValueVisitable)
	if !ok {
		return nil, errColumns
	}
	p := new(part)
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
	c.parts[seg.Id()] = p
	return p, nil
}

func (c *columns) numberOf(facet int, value []byte) uint32 {
	n, ok := c.number[facet][string(value)]
	if !ok {
		n = uint32(len(c.values[facet]))
		own := string(value)
		c.number[facet][own] = n
		c.values[facet] = append(c.values[facet], own)
	}
	return n
}

// drop forgets segments that the view has no more; and all, numbers included,
// when most values may be of profiles that are gone.
func (c *columns) drop(v *view) {
	there := map[uint64]bool{}
	for _, seg := range v.segments {
		there[seg.Id()] = true
	}
	used := [len(facets)]int{}
	for id, p := range c.parts {
		if !there[id] {
			delete(c.parts, id)
			continue
		}
		for f := range p {
			used[f] += len(p[f].values)
		}
	}
	const few = 10_000
	again := c.parts == nil
	for f := range used {
		again = again || len(c.values[f]) > 2*used[f]+few
	}
	if !again {
		return
	}
	c.parts = map[uint64]*part{}
	for f := range facets {
		c.values[f], c.number[f] = nil, map[string]uint32{}
	}
}
