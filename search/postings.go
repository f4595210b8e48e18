package search

import (
	"math"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// A postings list is where one segment has a term. Bleve's own reader over all
// segments costs about twice as much for each document.
type postings struct {
	segment.PostingsIterator
	offset uint64 // the number of the segment's first document
}

// postings opens the lists of a term, and counts its documents. Deleted
// documents are neither listed nor counted. With weights, the frequency and
// the field's length are read too.
func (v *view) postings(name, term string, weights bool) (lists []postings, count int, err error) {
	dictionaries, err := v.dictionariesOf(name)
	if err != nil {
		return nil, 0, err
	}
	for i, d := range dictionaries {
		p, err := d.PostingsList([]byte(term), v.segments[i].Deleted(), nil)
		if err != nil {
			return nil, 0, err
		}
		if n := p.Count(); n > 0 {
			count += int(n)
			lists = append(lists, postings{p.Iterator(weights, weights, false, nil), v.offsets[i]})
		}
	}
	return lists, count, nil
}

// dictionariesOf opens a field's dictionaries, one a segment, once a view.
func (v *view) dictionariesOf(name string) ([]segment.TermDictionary, error) {
	if list, ok := v.dictionaries[name]; ok {
		return list, nil
	}
	list := make([]segment.TermDictionary, len(v.segments))
	for i, s := range v.segments {
		d, err := s.Segment().Dictionary(name)
		if err != nil {
			return nil, err
		}
		list[i] = d
	}
	v.dictionaries[name] = list
	return list, nil
}

// lengthOf is the length of the field in the posting's document. Zap keeps it
// as it is; the interface of segments has only 1/√length.
func lengthOf(p segment.Posting) float64 {
	if exact, ok := p.(interface{ NormUint64() uint64 }); ok {
		return float64(exact.NormUint64())
	}
	return math.Round(1 / (p.Norm() * p.Norm()))
}
