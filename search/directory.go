package search

import (
	"slices"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// A directory maps each Mecha to its document in a view. It is the same for all views of
// the same documents, and does not change.
type directory struct {
	state  []uint64 // the views that it is for
	mechas []uint32 // the number of the Mecha, by document, deleted ones included
	docs   []uint32 // the document, from 1, by number of the Mecha, or 0
	crews  int      // how many different crews there are, at most CountedCrews
}

// directoryOf returns the directory of a view.
func (c *columns) directoryOf(v *view) (*directory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var state []uint64
	for _, seg := range v.segments {
		deleted := uint64(0)
		if d := seg.Deleted(); d != nil {
			deleted = d.GetCardinality()
		}
		state = append(state, seg.Id(), deleted)
	}
	if c.newest != nil && slices.Equal(c.newest.state, state) {
		return c.newest, nil
	}
	d := &directory{state: state}
	if err := c.readMechas(v, d); err != nil {
		return nil, err
	}
	if err := d.countCrews(v); err != nil {
		return nil, err
	}
	c.newest = d
	return d, nil
}

// readMechas fills mechas and docs.
func (c *columns) readMechas(v *view, d *directory) error {
	old, greatest := c.mechas, uint32(0)
	c.mechas = map[uint64][]uint32{}
	for at, seg := range v.segments {
		mechas := old[seg.Id()]
		if mechas == nil {
			mechas = make([]uint32, seg.FullSize())
			if err := v.eachMetaOf(at, func(n int, m meta) {
				if 0 < m.id && m.id <= MaxMecha {
					mechas[n] = uint32(m.id)
				}
			}); err != nil {
				return err
			}
		}
		c.mechas[seg.Id()] = mechas
		d.mechas = append(d.mechas, mechas...)
	}
	for _, m := range d.mechas {
		greatest = max(greatest, m)
	}
	d.docs = make([]uint32, greatest+1)
	for at, seg := range v.segments {
		for live := seg.DocNumbersLive().Iterator(); live.HasNext(); {
			doc := v.offsets[at] + uint64(live.Next())
			if m := d.mechas[doc]; m > 0 {
				d.docs[m] = uint32(doc) + 1
			}
		}
	}
	return nil
}

// countCrews fills crews.
func (d *directory) countCrews(v *view) error {
	crews, err := v.FieldDictPrefix(inFilter, []byte(filterCrew))
	if err != nil {
		return err
	}
	defer crews.Close()
	for d.crews < CountedCrews {
		entry, err := crews.Next()
		if err != nil || entry == nil {
			return err
		}
		n, err := v.count(inFilter, entry.Term) // without deleted documents
		if err != nil {
			return err
		}
		if n > 0 {
			d.crews++
		}
	}
	return nil
}

// eachMetaOf reads the metadata of all documents of a segment.
func (v *view) eachMetaOf(at int, f func(n int, m meta)) error {
	seg := v.segments[at]
	source, ok := seg.Segment().(segment.DocValueVisitable)
	if !ok {
		return errColumns
	}
	var state segment.DocVisitState
	var err error
	names := []string{inMeta}
	for n := range int(seg.FullSize()) {
		visit := func(_ string, value []byte) {
			if m, ok := parseMeta(value); ok {
				f(n, m)
			}
		}
		if state, err = source.VisitDocValues(uint64(n), names, visit, state); err != nil {
			return err
		}
	}
	return nil
}
