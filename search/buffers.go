package search

import (
	"math/bits"
	"sync"
)

// A bitset is a set of documents, by number.
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

// appendTo appends the numbers in the set to list, in order.
func (b bitset) appendTo(list []uint64) []uint64 {
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			list = append(list, uint64(i*64+bits.TrailingZeros64(w)))
		}
	}
	return list
}

// Buffers are the arrays of a search that are as long as the index: kept for
// the next one, or the collector of garbage would do half of the work. Most
// searches touch a small part of them, which they note as sets of bits; so
// looking through them and clearing them costs little, however large the index.
type buffers struct {
	coarse []float64 // zero, but for those in found
	names  []uint8   // zero, but for those in alike
	found  bitset    // empty
	alike  bitset    // empty
	wanted bitset    // anything
	list   []uint64
}

var pool = sync.Pool{New: func() any { return new(buffers) }}

// takeBuffers gives s its arrays. They go back by giveBuffers, but not after a
// panic: then they are not clean.
func (s *searcher) takeBuffers() {
	b := pool.Get().(*buffers)
	if n := s.v.size; uint64(len(b.coarse)) < n {
		n += n / 8 // the next search may find the index a little larger
		*b = buffers{coarse: make([]float64, n), names: make([]uint8, n),
			found: newBitset(n), alike: newBitset(n), wanted: newBitset(n)}
	}
	n := words(s.v.size)
	s.buffers, s.coarse, s.counts = b, b.coarse, b.names
	s.found, s.alike, s.wanted = b.found[:n], b.alike[:n], b.wanted[:n]
}

func (s *searcher) giveBuffers() {
	b := s.buffers
	b.list = s.found.appendTo(b.list[:0])
	for _, n := range b.list {
		b.coarse[n] = 0
	}
	b.list = s.alike.appendTo(b.list[:0])
	for _, n := range b.list {
		b.names[n] = 0
	}
	clear(s.found)
	clear(s.alike)
	pool.Put(b)
}
