package search

import (
	"context"
	"time"
)

// A clock limits the time of one search. A search whose time has expired ends
// with the hits found so far.
type clock struct {
	ctx      context.Context
	deadline time.Time
	budget   time.Duration
	expired  bool
}

// overAt is over for loops of many short steps: it reads the time only at every 1,024th step.
func (c *clock) overAt(step int) bool { return step&1023 == 1023 && c.over() || c.expired }

// late reports whether more than a third of the time has passed.
func (c *clock) late() bool { return time.Until(c.deadline) < c.budget*2/3 }

// over reads the time and reports whether the search must end.
func (c *clock) over() bool {
	c.expired = c.expired || time.Now().After(c.deadline) || c.ctx.Err() != nil
	return c.expired
}

// A searcher answers one request from one state of the index. Documents are
// numbers from 0; arrays and bitsets have an element for each.
type searcher struct {
	v     *view
	ctx   context.Context
	req   *Request
	clock clock

	query  *query
	hidden bitset // documents that the caller may not see, or nil
	wanted bitset // documents that are visible, pass the filter and are not excluded
	exact  map[uint64]exactness

	buffers    *buffers
	coarse     []float64  // BM25 of the combined text
	maxCoarse  float64    // an upper bound of coarse
	bestCoarse float64    // the greatest value in coarse
	lengths    [][]uint32 // lengths of the combined texts, by segment
	found      bitset     // documents that have a term of the query; after find, similar names too

	mayBeName      bool    // the query is short enough to be a name
	commonTrigrams []uint8 // the number of trigrams that the document's names share with the query
	similar        bitset  // documents with commonTrigrams above 0
	minTrigrams    uint8   // the minimum commonTrigrams of a name candidate

	exactSkills bitset // documents with a skill that is the query, or nil

	boost       Boost    // nil: none
	boosted     Boosted  // or nil
	wellKnown   []uint64 // the best documents that the Boost has found, ascending; they are candidates
	boostedOnly []uint64 // documents of wellKnown that are candidates only by the Boost
}

// exactness says whether a query is a Mecha's address, its name or the name of one of its
// skills.
type exactness uint8

const (
	notExact exactness = iota
	exactSkill
	exactName
	exactAddress
)
