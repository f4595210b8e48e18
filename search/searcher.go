package search

import (
	"context"
	"sync"
	"time"
)

// A bitset is a set of documents, by number.
type bitset []uint64

func newBitset(size uint64) bitset { return make(bitset, (size+63)/64) }

func (b bitset) add(n uint64)      { b[n/64] |= 1 << (n % 64) }
func (b bitset) remove(n uint64)   { b[n/64] &^= 1 << (n % 64) }
func (b bitset) has(n uint64) bool { return b[n/64]&(1<<(n%64)) != 0 }

// A clock bounds one search in time. After it has run out the search ends with
// what it has.
type clock struct {
	ctx      context.Context
	deadline time.Time
	budget   time.Duration
	ran      bool
}

// tick looks at the time at every thousandth of many small steps.
func (c *clock) tick(step int) bool { return step&1023 == 1023 && c.over() || c.ran }

// late tells whether a good part of the time is gone.
func (c *clock) late() bool { return time.Until(c.deadline) < c.budget*2/3 }

// over looks at the time.
func (c *clock) over() bool {
	c.ran = c.ran || time.Now().After(c.deadline) || c.ctx.Err() != nil
	return c.ran
}

// A searcher answers one request from one state of the index.
type searcher struct {
	v     *view
	ctx   context.Context
	req   *Request
	clock clock

	query  *query
	hidden bitset // nobody may show these to the caller; nil: none
	wanted bitset // those that may be found: seen, filtered, not excluded
	exact  map[uint64]exactness

	buffers  *buffers
	coarse   []float64 // BM25 of each document, by number
	names    []uint8   // trigrams in common
	nameLike uint8     // as many make a candidate
	top      float64   // the best of coarse
}

// exactness says whether a query is a Mecha's address or name.
type exactness uint8

const (
	notExact exactness = iota
	exactName
	exactAddress
)

// Buffers are the arrays of a search that are as long as the index: kept for
// the next one, or the collector of garbage would do half of the work.
type buffers struct {
	coarse []float64
	names  []uint8
	found  []uint64
}

var pool = sync.Pool{New: func() any { return new(buffers) }}

func (b *buffers) takeCoarse(n uint64) []float64 {
	if uint64(cap(b.coarse)) < n {
		b.coarse = make([]float64, n+n/8)
	}
	c := b.coarse[:n]
	clear(c)
	return c
}

func (b *buffers) takeNames(n uint64) []uint8 {
	if uint64(cap(b.names)) < n {
		b.names = make([]uint8, n+n/8)
	}
	c := b.names[:n]
	clear(c)
	return c
}

// each calls f with the number of every document that has the term.
func (s *searcher) each(name, term string, f func(doc uint64)) error {
	lists, _, err := s.v.postings(name, term, false)
	if err != nil {
		return err
	}
	step := 0
	for _, list := range lists {
		for ; !s.clock.tick(step); step++ {
			p, err := list.Next()
			if err != nil {
				return err
			}
			if p == nil {
				break
			}
			f(list.offset + p.Number())
		}
	}
	return nil
}

// scoreCoarsely adds up the BM25 of the combined text over the query's terms,
// in their order: floating-point sums depend on it. The rarest words of a long
// query come first, so that a search cut off by the clock has used the best.
func (s *searcher) scoreCoarsely() error {
	average := max(float64(s.v.totals.text)/max(float64(s.v.totals.documents), 1), 1)
	for _, i := range byWeight(s.query.terms) {
		if err := s.scoreTerm(&s.query.terms[i], average); err != nil {
			return err
		}
		if s.clock.over() {
			break
		}
	}
	for n, c := range s.coarse {
		if c > s.top && s.wanted.has(uint64(n)) {
			s.top = c
		}
	}
	return nil
}

func (s *searcher) scoreTerm(t *term, average float64) error {
	lists, _, err := s.v.postings(inText, t.term, true)
	if err != nil {
		return err
	}
	weight := t.weight * t.idf * (coarseK1 + 1)
	perLength := coarseK1 * coarseB / average
	step := 0
	for _, list := range lists {
		for ; !s.clock.tick(step); step++ {
			p, err := list.Next()
			if err != nil {
				return err
			}
			if p == nil {
				break
			}
			n := list.offset + p.Number()
			if !s.wanted.has(n) {
				continue
			}
			frequency := float64(p.Frequency()) / 2
			s.coarse[n] += weight * frequency / (frequency + coarseK1*(1-coarseB) + perLength*lengthOf(p))
		}
	}
	return nil
}
