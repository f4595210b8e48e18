package search

import (
	"math/bits"
	"sync"
)

// A bitset is a set of document numbers.
type bitset []uint64

func newBitset(size uint64) bitset { return make(bitset, words(size)) }

func words(size uint64) uint64 { return (size + 63) / 64 }

func (b bitset) add(n uint64)      { b[n/64] |= 1 << (n % 64) }
func (b bitset) remove(n uint64)   { b[n/64] &^= 1 << (n % 64) }
func (b bitset) has(n uint64) bool { return b[n/64]&(1<<(n%64)) != 0 }

func (b bitset) fill() {
	for i := range b {
		b[i] = ^uint64(0)
	}
}

// appendTo appends the numbers in the set to list, in ascending order.
func (b bitset) appendTo(list []uint64) []uint64 {
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			list = append(list, uint64(i*64+bits.TrailingZeros64(w)))
		}
	}
	return list
}

// buffers are the arrays of a search that are as long as the index. They are
// used again by later searches, since otherwise garbage collection would take
// half of the time. Most searches write to few elements and record them in
// bitsets, so reading and clearing the arrays is quick in a large index too.
type buffers struct {
	coarse         []float64 // all zero between searches
	commonTrigrams []uint8   // all zero between searches
	found          bitset    // empty between searches
	similar        bitset    // empty between searches
	findable       bitset    // empty between searches; the documents that a Boost finds
	wanted         bitset    // holds anything between searches
	list           []uint64
}

var pool = sync.Pool{New: func() any { return new(buffers) }}

// takeBuffers lends s its arrays. returnBuffers takes them back, but not after a
// panic, because then they have not been cleared.
func (s *searcher) takeBuffers() {
	b := pool.Get().(*buffers)
	if n := s.v.size; uint64(len(b.coarse)) < n {
		n += n / 8 // the index may have grown a little by the next search
		*b = buffers{coarse: make([]float64, n), commonTrigrams: make([]uint8, n),
			found: newBitset(n), similar: newBitset(n), findable: newBitset(n), wanted: newBitset(n)}
	}
	n := words(s.v.size)
	s.buffers, s.coarse, s.commonTrigrams = b, b.coarse, b.commonTrigrams
	s.found, s.similar, s.wanted = b.found[:n], b.similar[:n], b.wanted[:n]
}

func (s *searcher) returnBuffers() {
	b := s.buffers
	b.list = s.found.appendTo(b.list[:0])
	for _, n := range b.list {
		b.coarse[n] = 0
	}
	b.list = s.similar.appendTo(b.list[:0])
	for _, n := range b.list {
		b.commonTrigrams[n] = 0
	}
	if s.boosted != nil {
		s.boosted.Done()
	}
	clear(s.found)
	clear(s.similar)
	clear(b.findable)
	pool.Put(b)
}
