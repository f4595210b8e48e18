package search

import "testing"

// The cache forgets the records that nobody asks for, and keeps those in use.
func TestTheRecordCacheIsBounded(t *testing.T) {
	t.Parallel()
	var c recordCache
	used := documentKey{segment: 1}
	c.add(used, &record{id: 7})
	const each = recordBytes / 100
	for n := range uint64(1000) {
		c.add(documentKey{segment: 2, document: n}, &record{stored: each - recordOverhead})
		if r := c.find(used); r == nil || r.id != 7 {
			t.Fatalf("after %d others, the record in use is %+v", n+1, r)
		}
	}
	if held := len(c.young) + len(c.old); held > 2*102 {
		t.Errorf("it holds %d records, each a hundredth of a half", held)
	}
	if c.find(documentKey{segment: 2, document: 0}) != nil {
		t.Error("it holds the oldest record that nobody asked for")
	}
}
