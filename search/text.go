package search

import (
	"encoding/binary"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// textKey is the term of the index for a stem that a profile has so often. A
// list of documents without a number for each is read as bits, several times
// as fast as one with numbers; and few different frequencies occur.
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

// A bag is the documents of one segment that have a stem equally often.
type bag struct {
	segment   int
	frequency float64
	key       []byte
}

// bags gives all bags of a stem, and how many documents in them the caller may
// see (frequency says why only those); no bags, if none.
func (s *searcher) bags(stem string) (list []bag, count int, err error) {
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
			b := bag{segment: at, key: []byte(entry.Term)}
			frequency, _ := binary.Uvarint(b.key[len(start):])
			b.frequency = float64(frequency)
			found, err := s.v.open(d, at, b.key)
			if err != nil {
				return nil, 0, err
			}
			n, err := s.countVisible(found, s.v.offsets[at])
			if err != nil {
				return nil, 0, err
			}
			if n > 0 {
				list, count = append(list, b), count+n
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

// keysIn lists the terms of a dictionary from start up to, but without, end.
// Their counts are not asked for: they would include deleted documents.
func keysIn(d segment.TermDictionary, start, end []byte) segment.DictionaryIterator {
	if quick, ok := d.(interface {
		AutomatonIteratorOmitCount(a segment.Automaton, start, end []byte) segment.DictionaryIterator
	}); ok {
		return quick.AutomatonIteratorOmitCount(nil, start, end)
	}
	return d.AutomatonIterator(nil, start, end)
}

// scoreTerm adds what one term is worth, which is more than nothing.
func (s *searcher) scoreTerm(t *term, average float64) error {
	dictionaries, err := s.v.dictionariesOf(inText)
	if err != nil {
		return err
	}
	weight := t.weight * t.idf * (coarseK1 + 1)
	perLength := coarseK1 * coarseB / average
	for _, b := range t.bags {
		if s.clock.ran {
			break
		}
		list, err := s.v.open(dictionaries[b.segment], b.segment, b.key)
		if err != nil {
			return err
		}
		offset, lengths := s.v.offsets[b.segment], s.lengths[b.segment]
		frequency := b.frequency / 2
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
