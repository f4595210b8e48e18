package db

import (
	"testing"

	"relay/db/relay"
)

// Large profiles that searches list again and again take no more room than others, and one that
// has changed takes none twice.
func TestTheEntryCacheIsBounded(t *testing.T) {
	defer func(usual int) { nameBytes = usual }(nameBytes)
	nameBytes = 8 << 20 // as in use; no other test runs meanwhile
	var c entryCache
	const size = 64 << 10
	put := func(id relay.MechaNumber, revision int64) {
		c.all.put(id, cachedEntry{relay.Entry{Mecha: relay.Mecha{Number: id}, Revision: revision}, size}, size)
	}
	for n := range relay.MechaNumber(600) {
		put(n, 1)
		for id := range n {
			if e, ok := c.find(id, 1); ok && e.Mecha.Number != id {
				t.Fatalf("for %d it gives %d", id, e.Number)
			}
		}
	}
	if held := (len(c.all.young) + len(c.all.old)) * size; held > 2*nameBytes+2*size {
		t.Errorf("it holds %d bytes; two halves are %d", held, 2*nameBytes)
	}
	c = entryCache{}
	put(1, 1)
	before := c.all.bytes
	for revision := range int64(5) {
		if _, ok := c.find(1, revision+2); ok {
			t.Error("it gives an entry of another revision")
		}
		put(1, revision+2)
	}
	if c.all.bytes != before {
		t.Errorf("it counts %d bytes for one entry, and %d before it changed", c.all.bytes, before)
	}
}
