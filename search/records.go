package search

import "sync"

// recordCache remembers the records that searches have read lately, so that most are not
// decoded again. Segments never change, and neither do their records; no one may write to a
// record. Any goroutine may use the cache; the zero value is empty.
//
// It has two halves. When the young one is full, it replaces the old one. A record that is
// found in the old half moves to the young one.
type recordCache struct {
	mu         sync.Mutex
	young, old map[documentKey]*record
	bytes      int // of the young half
}

// A documentKey is a document of a segment.
type documentKey struct{ segment, document uint64 }

// recordBytes bounds a half of the cache, by the room of its records and recordOverhead for each,
// roughly the room of an element of the map.
const (
	recordBytes    = 4 << 20
	recordOverhead = 64
)

func (c *recordCache) find(k documentKey) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.young[k]; r != nil {
		return r
	}
	r := c.old[k]
	if r != nil {
		c.put(k, r)
	}
	return r
}

func (c *recordCache) add(k documentKey, r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(k, r)
}

func (c *recordCache) put(k documentKey, r *record) {
	if c.young == nil || c.bytes > recordBytes {
		c.young, c.old, c.bytes = map[documentKey]*record{}, c.young, 0
	}
	if c.young[k] == nil {
		c.bytes += r.room + recordOverhead
	}
	c.young[k] = r
}
