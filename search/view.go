package search

import (
	"fmt"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// A view is a consistent snapshot of the index. It does not change during a search. It
// belongs to one goroutine.
type view struct {
	*scorch.IndexSnapshot
	segments []*scorch.SegmentSnapshot
	offsets  []uint64 // the number of each segment's first document
	size     uint64   // documents, deleted ones included
	totals   totals
	position position

	dictionaries map[string][]segment.TermDictionary
	postings     postingsReader
	columns      *columns
	records      *recordCache
}

// view opens the newest state. The caller must close it.
func (s *store) view() (*view, error) {
	r, err := s.inner.Reader()
	if err != nil {
		return nil, &DamageError{err}
	}
	snapshot, ok := r.(*scorch.IndexSnapshot)
	if !ok {
		r.Close()
		return nil, &DamageError{fmt.Errorf("unknown reader %T", r)}
	}
	v := &view{IndexSnapshot: snapshot, segments: snapshot.Segments(), columns: &s.columns, records: &s.records,
		dictionaries: map[string][]segment.TermDictionary{}}
	for _, seg := range v.segments {
		v.offsets = append(v.offsets, v.size)
		v.size += uint64(seg.FullSize())
	}
	if err := v.readInternal(); err != nil {
		r.Close()
		return nil, err
	}
	return v, nil
}

// viewSafely is view for callers that do not recover from panics themselves.
func (s *store) viewSafely() (v *view, err error) {
	defer recoverDamage(&err)
	return s.view()
}

// readInternal reads the totals and the watermark.
func (v *view) readInternal() error {
	t, err := v.GetInternal(keyTotals)
	if err == nil {
		v.totals, err = decodeTotals(t)
	}
	if err != nil {
		return &DamageError{err}
	}
	p, err := v.GetInternal(keyWatermark)
	if err == nil {
		v.position, err = decodePosition(p)
	}
	if err != nil {
		return &DamageError{err}
	}
	return nil
}

// record returns the record of the document with this number. It is shared, so it must not be changed.
func (v *view) record(number uint64) (*record, error) {
	i := len(v.offsets) - 1
	for i > 0 && v.offsets[i] > number {
		i--
	}
	k := documentKey{v.segments[i].Id(), number - v.offsets[i]}
	if r := v.records.find(k); r != nil {
		return r, nil
	}
	r, err := new(record), errRecord
	visit := v.segments[i].VisitDocument(k.document, func(name string, _ byte, value []byte, _ []uint64) bool {
		if name != inRecord {
			return true
		}
		err = r.decode(value)
		return false
	})
	if visit != nil {
		return nil, visit
	}
	if err != nil {
		return nil, err
	}
	v.records.add(k, r)
	return r, nil
}
