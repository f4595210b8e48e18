package search

import (
	"encoding/binary"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// textKey returns the index's term for a stem with a frequency. The frequency is part of
// the term because postings without frequencies are bitmaps, which are read several times
// as fast. There are few different frequencies.
func textKey(stem string, frequency int) []byte {
	return binary.AppendUvarint(append([]byte(stem), 0), uint64(frequency))
}

func textOf(frequencies map[string]int) map[string]bool {
	set := make(map[string]bool, len(frequencies))
	for stem, n := range frequencies {
		set[string(textKey(stem, n))] = true
	}
	return set
}

// postings stand for the documents of one segment that have a stem with the
// same frequency.
type postings struct {
	segment   int
	frequency float64
	key       []byte
}

// postingsOf returns the postings of a stem, and the number of documents in them that the
// caller may see (frequency explains why). Postings without such a document are left out.
func (s *searcher) postingsOf(stem string) (list []postings, count int, err error) {
	dictionaries, err := s.v.dictionariesOf(inText)
	if err != nil {
		return nil, 0, err
	}
	start, end := append([]byte(stem), 0), append([]byte(stem), 1)
	for at, d := range dictionaries {
		keys := keysIn(d, start, end)
		for {
			entry, err := keys.Next()
			if err != nil {
				return nil, 0, err
			}
			if entry == nil {
				break
			}
			p := postings{segment: at, key: []byte(entry.Term)}
			frequency, _ := binary.Uvarint(p.key[len(start):])
			p.frequency = float64(frequency)
			found, err := s.v.open(d, at, p.key)
			if err != nil {
				return nil, 0, err
			}
			n, err := s.countVisible(found, s.v.offsets[at])
			if err != nil {
				return nil, 0, err
			}
			if n > 0 {
				list, count = append(list, p), count+n
			}
		}
	}
	return list, count, nil
}

func (s *searcher) countVisible(list segment.PostingsList, offset uint64) (n int, err error) {
	if s.hidden == nil {
		return int(list.Count()), nil
	}
	err = s.eachOf(list, offset, func(doc uint64) {
		if !s.hidden.has(doc) {
			n++
		}
	})
	return n, err
}

// keysIn iterates over the terms of a dictionary in [start, end), without their
// document counts, which would include deleted documents.
func keysIn(d segment.TermDictionary, start, end []byte) segment.DictionaryIterator {
	if d, ok := d.(interface {
		AutomatonIteratorOmitCount(a segment.Automaton, start, end []byte) segment.DictionaryIterator
	}); ok {
		return d.AutomatonIteratorOmitCount(nil, start, end)
	}
	return d.AutomatonIterator(nil, start, end)
}

// scoreTerm adds one term's BM25, which is above 0, to the documents that have it.
func (s *searcher) scoreTerm(t *term, average float64) error {
	dictionaries, err := s.v.dictionariesOf(inText)
	if err != nil {
		return err
	}
	weight := t.weight * t.idf * (coarseK1 + 1)
	perLength := coarseK1 * coarseB / average
	for _, p := range t.postings {
		if s.clock.expired {
			break
		}
		list, err := s.v.open(dictionaries[p.segment], p.segment, p.key)
		if err != nil {
			return err
		}
		offset, lengths := s.v.offsets[p.segment], s.lengths[p.segment]
		frequency := p.frequency / 2 // storedWeight is doubled
		most, least := weight*frequency, frequency+coarseK1*(1-coarseB)
		if err := s.eachOf(list, offset, func(n uint64) {
			if s.wanted.has(n) {
				s.coarse[n] += most / (least + perLength*float64(lengths[n-offset]))
				s.found.add(n)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}
