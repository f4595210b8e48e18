package search

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/blevesearch/bleve/v2"
	index "github.com/blevesearch/bleve_index_api"
	segment "github.com/blevesearch/scorch_segment_api/v2"

	"relay/db/relay"
)

// What package search reads below bleve's own readers (index.go) is measured here against them,
// and what it relies on is checked. A test that fails after an upgrade names the part.

// mustFill makes an index of n profiles in several segments. All have the word "common".
func mustFill(t testing.TB, n int) *store {
	t.Helper()
	s, err := createStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	const page = 1000
	var entries []relay.Entry
	for id := 1; id <= n; id++ {
		e := relay.Entry{Revision: int64(id)}
		e.Number, e.Address = relay.MechaNumber(id), relay.Address(fmt.Sprintf("m%d^crew", id))
		e.Description = fmt.Sprintf("a common thing that is number%d", id)
		if entries = append(entries, e); len(entries) == page || id == n {
			if err := s.apply(entries); err != nil {
				t.Fatal(err)
			}
			entries = entries[:0]
		}
	}
	return s
}

func mustView(t testing.TB, s *store) *view {
	t.Helper()
	v, err := s.view()
	if err != nil {
		t.Fatalf("view (search/view.go): %v", err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

// common is a term that all these profiles have.
const common = filterCrew + "crew"

// A way reads something of all documents of a view, and returns how many documents it met
// and a sum of what it read.
type way func(v *view) (documents int, sum uint64, err error)

// ways are what a search reads: our way of reading it, and bleve's.
var ways = map[string]struct{ ours, bleve way }{
	"postings": {ourPostings, blevePostings},
	"lengths":  {ourLengths, bleveLengths},
	"records":  {ourRecords, bleveRecords},
}

func ourPostings(v *view) (n int, sum uint64, err error) {
	s := &searcher{v: v, clock: clock{ctx: context.Background(), deadline: time.Now().Add(time.Hour)}}
	err = s.each(inFilter, common, func(doc uint64) { n, sum = n+1, sum+doc })
	return n, sum, err
}

func blevePostings(v *view) (n int, sum uint64, err error) {
	r, err := v.TermFieldReader(context.Background(), []byte(common), inFilter, false, false, false)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	for p := new(index.TermFieldDoc); ; n++ {
		d, err := r.Next(p)
		if d == nil || err != nil {
			return n, sum, err
		}
		sum += d.ID.Value()
	}
}

// ourLengths reads columns, which the first search makes.
func ourLengths(v *view) (n int, sum uint64, err error) {
	lengths, err := v.columns.lengthsOf(v)
	for i, seg := range v.segments {
		for live := seg.DocNumbersLive().Iterator(); err == nil && live.HasNext(); n++ {
			sum += uint64(lengths[i][live.Next()])
		}
	}
	return n, sum, err
}

func bleveLengths(v *view) (n int, sum uint64, err error) {
	r, err := v.DocValueReader([]string{inMeta})
	for i, seg := range v.segments {
		for live := seg.DocNumbersLive().Iterator(); err == nil && live.HasNext(); n++ {
			id := index.NewIndexInternalID(nil, v.offsets[i]+uint64(live.Next()))
			err = r.VisitDocValues(id, func(_ string, value []byte) {
				m, _ := parseMeta(value)
				sum += uint64(m.length)
			})
		}
	}
	return n, sum, err
}

const recordsOfASearch = 200 // documents that are scored again by their records

func ourRecords(v *view) (n int, sum uint64, err error) {
	v.records = new(recordCache) // as after a start
	for n < recordsOfASearch && err == nil {
		var r *record
		if r, err = v.record(v.size - 1 - uint64(n)); err == nil {
			n, sum = n+1, sum+uint64(r.id)
		}
	}
	return n, sum, err
}

func bleveRecords(v *view) (n int, sum uint64, err error) {
	for n < recordsOfASearch && err == nil {
		var d index.Document
		var id string
		if id, err = v.ExternalID(index.NewIndexInternalID(nil, v.size-1-uint64(n))); err == nil {
			d, err = v.Document(id)
		}
		if err != nil || d == nil {
			return n, sum, errors.Join(err, errNoDocument)
		}
		d.VisitFields(func(f index.Field) {
			if r := new(record); f.Name() == inRecord && r.decode(f.Value()) == nil {
				n, sum = n+1, sum+uint64(r.id)
			}
		})
	}
	return n, sum, err
}

var errNoDocument = errors.New("no document")

// BenchmarkSnapshot reads what a search reads of 20,000 profiles.
func BenchmarkSnapshot(b *testing.B) {
	v := mustView(b, mustFill(b, 20_000))
	for name, w := range ways {
		for _, of := range []struct {
			name string
			read way
		}{{"ours", w.ours}, {"bleve", w.bleve}} {
			b.Run(name+"/"+of.name, func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					if n, _, err := of.read(v); n == 0 || err != nil {
						b.Fatal(n, err)
					}
				}
			})
		}
	}
}

// What we read of the segments is what bleve reads: of new documents, of changed ones and
// without removed ones.
func TestTheSnapshotIsReadAsBleveReadsIt(t *testing.T) {
	t.Parallel()
	s := mustFill(t, 3000)
	same := func(documents int) {
		t.Helper()
		v := mustView(t, s)
		for name, w := range ways {
			n, sum, err := w.ours(v)
			bleveN, bleveSum, bleveErr := w.bleve(v)
			if name == "records" && v.size != uint64(documents) {
				continue // both are asked for deleted documents, too
			}
			if n != bleveN || sum != bleveSum || err != nil || bleveErr != nil || name != "records" && n != documents {
				t.Errorf("%s of %d documents: we read %d, %d, %v, and bleve %d, %d, %v: see view.go, postings.go and columns.go",
					name, documents, n, sum, err, bleveN, bleveSum, bleveErr)
			}
		}
		for i, seg := range v.segments {
			if _, ok := seg.Segment().(segment.DocValueVisitable); !ok {
				t.Errorf("a segment is a %T, without columns: see columns.go", seg.Segment())
			}
			d, err := seg.Segment().Dictionary(inFilter)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := d.(interface {
				AutomatonIteratorOmitCount(a segment.Automaton, start, end []byte) segment.DictionaryIterator
			}); !ok {
				t.Errorf("a dictionary is a %T, which counts documents that nobody asks for: see keysIn", d)
			}
			for _, other := range v.segments[:i] {
				if other.Id() == seg.Id() {
					t.Errorf("two segments have the id %d, by which columns.go and records.go know them", seg.Id())
				}
			}
		}
	}
	same(3000)
	changed := relay.Entry{Revision: 3001}
	changed.Number, changed.Address, changed.Description = 7, "m7^crew", "another text, of another length"
	removed := relay.Entry{Revision: 3002}
	removed.Number, removed.Address, removed.Removed = 8, "m8^crew", true
	if err := s.apply([]relay.Entry{changed, removed}); err != nil {
		t.Fatal(err)
	}
	same(2999)
}

// Before bleve opens an index, we read its newest state and the checksums of its segments
// (store.go). That is right only while its files are as they are.
func TestTheFilesOfAnIndexAreAsTheyAreRead(t *testing.T) {
	t.Parallel()
	s := mustFill(t, 1500)
	dir := s.bleve.Name()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if p, err := newestPosition(filepath.Join(dir, "store", "root.bolt")); p.revision != 1500 || err != nil {
		t.Errorf("the newest state is read as %+v, %v: see newestPosition", p, err)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "store", "*.zap"))
	if len(names) == 0 {
		t.Fatal("no segment ends in .zap: see removeBrokenSegments")
	}
	for _, name := range names {
		if whole, err := segmentIsWhole(name); !whole || err != nil {
			t.Errorf("a whole segment is not: %v: see segmentIsWhole", err)
		}
	}
	b, err := os.ReadFile(names[0])
	if err == nil {
		b[len(b)-1] ^= 1 // of the checksum
		err = os.WriteFile(names[0], b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	x, err := bleve.OpenUsing(dir, runtimeConfig())
	if err != nil {
		t.Fatalf("bleve opens no index with a wrong checksum any more: see whether removeBrokenSegments can go: %v", err)
	}
	x.Close()
	if whole, err := segmentIsWhole(names[0]); whole || err != nil {
		t.Errorf("a wrong checksum is right: %v", err)
	}
}
