// Package cache has the one bounded cache of the relay. It has two generations: when the
// young one is full, it replaces the old one. A pair that is found in the old generation
// moves to the young one. So a flood of pairs that are used only once does not drop the pairs
// in use.
//
// A cache must equal its source: a change of the source must call Drop or Forget. A reader
// that may have read an older state of the source puts its pair by PutSince, which drops it
// if Forget was called meanwhile.
//
// The package knows nothing of keys and values. Callers say how large a pair is, in any unit.
package cache

import "sync"

// A Cache remembers pairs, up to a bound. Make it with New. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	half int // the bound of a generation

	mu         sync.RWMutex
	young, old map[K]pair[V]
	size       int // of the young generation
	epoch      int // how often Forget was called
}

type pair[V any] struct {
	value V
	size  int
}

// New returns an empty cache. Its pairs together are at most as large as bound, except for
// a single pair that is larger than half of it.
func New[K comparable, V any](bound int) *Cache[K, V] {
	return &Cache[K, V]{half: bound / 2, young: map[K]pair[V]{}}
}

// Find looks up a pair.
func (c *Cache[K, V]) Find(k K) (v V, ok bool) {
	c.mu.RLock()
	p, young := c.young[k]
	if !young {
		p, ok = c.old[k]
	}
	c.mu.RUnlock()
	if ok {
		c.renew(k)
	}
	return p.value, young || ok
}

// renew moves a pair to the young generation.
func (c *Cache[K, V]) renew(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, young := c.young[k]
	if p, ok := c.old[k]; ok && !young { // neither dropped nor replaced since
		c.put(k, p)
	}
}

// Put adds a pair, or replaces the one with this key.
func (c *Cache[K, V]) Put(k K, v V, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(k, pair[V]{v, size})
}

// Epoch returns the argument of PutSince. Call it before reading the source.
func (c *Cache[K, V]) Epoch() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.epoch
}

// PutSince is Put for a pair that was read after Epoch returned epoch. It does nothing if
// Forget was called since.
func (c *Cache[K, V]) PutSince(epoch int, k K, v V, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == epoch {
		c.put(k, pair[V]{v, size})
	}
}

// put adds a pair to the young generation. The caller must hold c.mu.
func (c *Cache[K, V]) put(k K, p pair[V]) {
	c.size += p.size - c.young[k].size
	if c.size > c.half {
		c.young, c.old, c.size = map[K]pair[V]{}, c.young, p.size
	}
	c.young[k] = p
}

// Drop removes the pair with a key, if there is one.
func (c *Cache[K, V]) Drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size -= c.young[k].size
	delete(c.young, k)
	delete(c.old, k)
}

// Forget removes all pairs.
func (c *Cache[K, V]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.young, c.old, c.size = map[K]pair[V]{}, nil, 0
	c.epoch++
}

// Size returns how large the pairs are together.
func (c *Cache[K, V]) Size() (size int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range c.old {
		size += p.size
	}
	return size + c.size
}
