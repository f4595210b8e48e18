package search

import (
	"math"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// A walker reads the postings of terms, segment by segment: bleve's own reader
// over all segments costs about twice as much for each document. What it reads
// with is used again for the next segment and the next term, for a search
// opens some hundred lists.
type walker struct {
	list     segment.PostingsList
	iterator segment.PostingsIterator
}

// open gives the postings of a term in one segment, which are good until the
// next open. Deleted documents are neither listed nor counted.
func (v *view) open(d segment.TermDictionary, at int, term []byte) (segment.PostingsList, error) {
	list, err := d.PostingsList(term, v.segments[at].Deleted(), v.walker.list)
	if err != nil {
		return nil, err
	}
	v.walker.list = list
	return list, nil
}

// count is the number of documents that have the term.
func (v *view) count(name, term string) (n int, err error) {
	dictionaries, err := v.dictionariesOf(name)
	if err != nil {
		return 0, err
	}
	key := []byte(term)
	for i, d := range dictionaries {
		list, err := v.open(d, i, key)
		if err != nil {
			return 0, err
		}
		n += int(list.Count())
	}
	return n, nil
}

// walk calls f with every posting of the term and the number of its document,
// in order, until f says no or the clock has run out. The posting is good until
// the next one. With weights, the frequency and the field's length are read
// too. f must not walk.
func (s *searcher) walk(name, term string, weights bool, f func(doc uint64, p segment.Posting) bool) error {
	v := s.v
	dictionaries, err := v.dictionariesOf(name)
	if err != nil {
		return err
	}
	key, step := []byte(term), 0
	for i, d := range dictionaries {
		list, err := v.open(d, i, key)
		if err != nil {
			return err
		}
		if list.Count() == 0 {
			continue
		}
		it := list.Iterator(weights, weights, false, v.walker.iterator)
		v.walker.iterator = it
		offset := v.offsets[i]
		for ; ; step++ {
			if s.clock.tick(step) {
				return nil
			}
			p, err := it.Next()
			if err != nil {
				return err
			}
			if p == nil {
				break
			}
			if !f(offset+p.Number(), p) {
				return nil
			}
		}
	}
	return nil
}

// each calls f with the number of every document that has the term.
func (s *searcher) each(name, term string, f func(doc uint64)) error {
	return s.walk(name, term, false, func(doc uint64, _ segment.Posting) bool {
		f(doc)
		return true
	})
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
