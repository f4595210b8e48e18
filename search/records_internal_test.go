package search

import (
	"runtime"
	"strings"
	"testing"
)

// The cache forgets the records that nobody asks for, and keeps those in use.
func TestTheRecordCacheIsBounded(t *testing.T) {
	t.Parallel()
	var c recordCache
	used := documentKey{segment: 1}
	c.add(used, &record{id: 7})
	const each = recordBytes / 100
	for n := range uint64(1000) {
		c.add(documentKey{segment: 2, document: n}, &record{room: each - recordOverhead})
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

// A record with many short texts and long names takes many times its bytes in the index. It
// counts as what it takes.
func TestARecordCountsAsWhatItTakes(t *testing.T) {
	r := record{address: "a^b", names: []string{strings.Repeat("name ", 30)}}
	for range 6000 {
		r.passages = append(r.passages, passage{skill: -1, words: []uint32{1}})
	}
	b := r.encode()
	const records = 100
	held := make([]*record, 0, records)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range records {
		var r record
		if err := r.decode(b); err != nil {
			t.Fatal(err)
		}
		r.nameTrigrams()
		held = append(held, &r)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	takes := int(after.HeapAlloc-before.HeapAlloc) / records
	if counts := held[0].room; counts < takes/2 || counts > 2*takes {
		t.Errorf("it counts as %d bytes and takes %d; %d in the index", counts, takes, len(b))
	}
	runtime.KeepAlive(held)
}
