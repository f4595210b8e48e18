package search

import "encoding/binary"

// totals are the statistics of BM25: the number of documents, and the sums of their
// lengths. They are whole numbers: each document's numbers are added with it, and
// subtracted when it is removed. So they depend only on the present documents, not on the
// order or size of the batches or on deleted documents. (Bleve's own are estimates for
// each segment.)
type totals struct {
	documents int
	text      int // lengths of the combined texts
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
