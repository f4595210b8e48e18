package search

import (
	"relay/db/relay"

	"github.com/blevesearch/bleve/v2"
)

// apply applies a page of entries in one batch, with the watermark, the totals
// and the recent entries: after a crash the index has either all of them or none.
// Only one goroutine may call it at a time.
func (s *store) apply(entries []relay.Entry) (err error) {
	defer recoverDamage(&err)
	defer panicOnFault()()
	if len(entries) == 0 {
		return nil
	}
	v, err := s.view()
	if err != nil {
		return err
	}
	defer v.Close()
	// The source has one entry for each Mecha. Should a page have two, the last counts.
	latest := make(map[relay.MechaNumber]int, len(entries))
	for i := range entries {
		latest[entries[i].Number] = i
	}
	before, err := v.recent()
	if err != nil {
		return err
	}
	batch, sum := s.bleve.NewBatch(), v.totals
	for i := range entries {
		if latest[entries[i].Number] != i {
			continue
		}
		if err := change(v, batch, &sum, &entries[i]); err != nil {
			return err
		}
	}
	last := &entries[len(entries)-1]
	batch.SetInternal(keyTotals, sum.encode())
	batch.SetInternal(keyWatermark, position{last.Revision, last.Number}.encode())
	batch.SetInternal(keyRecent, before.after(entries, latest).encode())
	batch.SetInternal(keyVersion, []byte(indexVersion))
	if err := s.bleve.Batch(batch); err != nil {
		return &DamageError{err}
	}
	return nil
}

// change adds one entry to the batch, and its difference to the totals.
func change(v *view, batch *bleve.Batch, sum *totals, e *relay.Entry) error {
	switch old, err := v.recordOf(e.Number); {
	case err != nil:
		return &DamageError{err}
	case old != nil:
		sum.subtract(old)
	case e.Removed:
		return nil
	}
	if e.Removed {
		batch.Delete(documentID(e.Number))
		return nil
	}
	doc, r := documentOf(e)
	sum.add(r)
	return batch.IndexAdvanced(doc)
}

// recordOf returns the record of a Mecha; nil if the index has none.
func (v *view) recordOf(id relay.MechaNumber) (*record, error) {
	number, err := v.InternalID(documentID(id))
	if err != nil || number == nil {
		return nil, err
	}
	return v.record(number.Value())
}
