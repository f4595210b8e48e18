package search

import "encoding/binary"

// Totals are the statistics of BM25: how many documents there are and how long
// their fields are together. They are whole numbers, kept by adding and
// subtracting what each document's record says, so they depend on nothing but
// the documents that are there now: not on the order or size of the batches,
// nor on what has been deleted. (Bleve's own are estimates per segment.)
type totals struct {
	documents int
	text      int // combined lengths, by storedWeight
	lengths   [fields]int
}

func (t *totals) add(r *record) {
	t.documents++
	t.text += r.total
	for i, n := range r.lengths {
		t.lengths[i] += n
	}
}

func (t *totals) subtract(r *record) {
	t.documents--
	t.text -= r.total
	for i, n := range r.lengths {
		t.lengths[i] -= n
	}
}

func (t *totals) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(t.documents))
	b = binary.AppendUvarint(b, uint64(t.text))
	for _, n := range t.lengths {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func decodeTotals(b []byte) (t totals, err error) {
	if len(b) == 0 {
		return t, nil
	}
	d := decoder{b: b}
	t.documents, t.text = int(d.long()), int(d.long())
	for i := range t.lengths {
		t.lengths[i] = int(d.long())
	}
	if d.failed {
		err = errRecord
	}
	return t, err
}
