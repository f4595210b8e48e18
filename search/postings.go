package search

import (
	"errors"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// A walker reads the postings of terms, segment by segment: bleve's own reader
// over all segments costs about twice as much for each document. What it reads
// with is used again for the next segment and the next term, for a search
// opens some hundred lists.
type walker struct {
	list     segment.PostingsList
	iterator segment.PostingsIterator
	some     [256]uint32
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
	err = v.lists(name, term, func(list segment.PostingsList, _ uint64) error {
		n += int(list.Count())
		return nil
	})
	return n, err
}

// lists calls f with the postings of the term in each segment that has it, and
// the number of that segment's first document. f must not read other postings.
func (v *view) lists(name, term string, f func(list segment.PostingsList, offset uint64) error) error {
	dictionaries, err := v.dictionariesOf(name)
	if err != nil {
		return err
	}
	key := []byte(term)
	for i, d := range dictionaries {
		list, err := v.open(d, i, key)
		if err == nil && list.Count() > 0 {
			err = f(list, v.offsets[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls f with the number of every document that has the term, in order.
// It takes the numbers from the bits that a list is kept as, many at a time.
func (s *searcher) each(name, term string, f func(doc uint64)) error {
	return s.v.lists(name, term, func(list segment.PostingsList, offset uint64) error {
		return s.eachOf(list, offset, f)
	})
}

func (s *searcher) eachOf(list segment.PostingsList, offset uint64, f func(doc uint64)) error {
	it := list.Iterator(false, false, false, s.v.walker.iterator)
	s.v.walker.iterator = it
	whole, ok := it.(segment.OptimizablePostingsIterator)
	if !ok {
		return errPostings
	}
	if n, ok := whole.DocNum1Hit(); ok {
		f(offset + n)
		return nil
	}
	documents := whole.ActualBitmap()
	if documents == nil { // all that had it have been deleted
		return nil
	}
	all := documents.ManyIterator()
	for some := s.v.walker.some[:]; ; {
		n := all.NextMany(some)
		for _, doc := range some[:n] {
			f(offset + uint64(doc))
		}
		if n < len(some) || s.clock.over() {
			return nil
		}
	}
}

var errPostings = errors.New("search: postings that are no bits")

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
