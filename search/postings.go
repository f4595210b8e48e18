package search

import (
	"errors"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// The postings of a term are read segment by segment, many at a time from a bitmap. Bleve's own
// reader returns one document at a time (BenchmarkSnapshot).

// A postingsReader is the working memory for reading postings. It is reused for each
// segment and term, because a search reads hundreds of lists.
type postingsReader struct {
	list     segment.PostingsList
	iterator segment.PostingsIterator
	numbers  [256]uint32
}

// open returns the postings of a term in one segment, valid until the next open.
// Deleted documents are neither listed nor counted.
func (v *view) open(d segment.TermDictionary, at int, term []byte) (segment.PostingsList, error) {
	list, err := d.PostingsList(term, v.segments[at].Deleted(), v.postings.list)
	if err != nil {
		return nil, err
	}
	v.postings.list = list
	return list, nil
}

// count returns the number of documents that have the term.
func (v *view) count(name, term string) (n int, err error) {
	err = v.lists(name, term, func(list segment.PostingsList, _ uint64) error {
		n += int(list.Count())
		return nil
	})
	return n, err
}

// lists calls f with the postings of the term in each segment that has it, and
// with the number of that segment's first document. f must not read other postings.
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

// each calls f with the number of every document that has the term, in ascending
// order.
func (s *searcher) each(name, term string, f func(doc uint64)) error {
	return s.v.lists(name, term, func(list segment.PostingsList, offset uint64) error {
		return s.eachOf(list, offset, f)
	})
}

// eachOf reads the numbers from the bitmap of the list, many at a time.
func (s *searcher) eachOf(list segment.PostingsList, offset uint64, f func(doc uint64)) error {
	it := list.Iterator(false, false, false, s.v.postings.iterator)
	s.v.postings.iterator = it
	bits, ok := it.(segment.OptimizablePostingsIterator)
	if !ok {
		return errPostings
	}
	if n, ok := bits.DocNum1Hit(); ok {
		f(offset + n)
		return nil
	}
	documents := bits.ActualBitmap()
	if documents == nil { // every document that had the term has been deleted
		return nil
	}
	all := documents.ManyIterator()
	for numbers := s.v.postings.numbers[:]; ; {
		n := all.NextMany(numbers)
		for _, doc := range numbers[:n] {
			f(offset + uint64(doc))
		}
		if n < len(numbers) || s.clock.over() {
			return nil
		}
	}
}

var errPostings = errors.New("search: postings are not a bitmap")

// dictionariesOf returns a field's dictionaries, one for each segment. They are
// opened once in a view.
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
