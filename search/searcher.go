package search

import (
	"context"
	"time"
)

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
	coarse   []float64  // BM25 of each document, by number
	lengths  [][]uint32 // of the combined text of each document, by segment
	found    bitset     // who has a word of the query, or, in the end, a name like it
	byName   bool       // the query may be a name
	counts   []uint8    // trigrams in common with it
	alike    bitset     // who has any
	nameLike uint8      // as many make a candidate
	top      float64    // the best of coarse

	skilled    bitset  // who has the query as a skill; nil: nobody
	mostCoarse float64 // more than coarse can be
}

// exactness says whether a query is a Mecha's address, its name or a skill's.
type exactness uint8

const (
	notExact exactness = iota
	exactSkill
	exactName
	exactAddress
)

// scoreCoarsely adds up the BM25 of the combined text over the query's terms,
// in their order: floating-point sums depend on it. The rarest words of a long
// query come first, so that a search cut off by the clock has used the best.
func (s *searcher) scoreCoarsely() error {
	average := max(float64(s.v.totals.text)/max(float64(s.v.totals.documents), 1), 1)
	var err error
	if s.lengths, err = s.v.columns.lengthsOf(s.v); err != nil {
		return err
	}
	for i := range s.query.terms {
		s.mostCoarse += s.query.terms[i].weight * s.query.terms[i].idf * (coarseK1 + 1)
	}
	for _, i := range byWeight(s.query.terms) {
		if err := s.scoreTerm(&s.query.terms[i], average); err != nil {
			return err
		}
		if s.clock.over() {
			break
		}
	}
	return nil
}
