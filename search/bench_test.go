package search_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
	"relay/search"
)

// Benchmarks of 10,000 and 100,000 generated profiles:
//
//	go test -run '^$' -bench . -benchtime 2s ./search
//
// RELAY_DISCOVERY_DATA gives them the words of real profiles.

var benchmarkSizes = []int{5_000, 10_000, 100_000}

// learnedPerMecha is how many counts each Mecha has in the benchmarks of learning.
const learnedPerMecha = 50

// big keeps one index for all benchmarks of a size: making it takes longer
// than they do.
var big = struct {
	sync.Mutex
	indexes map[bigSize]*search.Index
	seconds map[int]float64
	heap    map[int]float64
	disk    map[int]float64
}{indexes: map[bigSize]*search.Index{}, seconds: map[int]float64{}, heap: map[int]float64{}, disk: map[int]float64{}}

// A bigSize is the number of profiles, and of learned counts of each.
type bigSize struct{ profiles, counts int }

func (s bigSize) String() string {
	if s.counts == 0 {
		return fmt.Sprint(s.profiles)
	}
	return fmt.Sprintf("%d+%d-counts", s.profiles, s.profiles*s.counts)
}

func bigIndex(b *testing.B, n int) *search.Index { return bigIndexThatLearned(b, bigSize{n, 0}) }

func bigIndexThatLearned(b *testing.B, wanted bigSize) *search.Index {
	b.Helper()
	n := wanted.profiles
	big.Lock()
	defer big.Unlock()
	if x := big.indexes[wanted]; x != nil {
		return x
	}
	for old, x := range big.indexes {
		x.Close()
		delete(big.indexes, old)
	}
	s := &stream{generator: newGenerator(b, 42), n: n, counts: wanted.counts}
	before := heap()
	began := time.Now()
	dir := b.TempDir()
	x, err := search.Open(dir, search.Options{Boost: boost(s)})
	if err != nil {
		b.Fatal(err)
	}
	go x.Follow(context.Background(), s)
	for !x.Ready() {
		time.Sleep(time.Millisecond)
	}
	big.seconds[n] = time.Since(began).Seconds() - s.took.Seconds()
	s.generator = nil
	big.heap[n] = heap() - before
	big.disk[n] = size(dir)
	big.indexes[wanted] = x
	return x
}

func size(dir string) (mib float64) {
	filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil {
			if info, err := d.Info(); err == nil && !d.IsDir() {
				mib += float64(info.Size()) / (1 << 20)
			}
		}
		return nil
	})
	return mib
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse) / (1 << 20)
}

// A stream is a source that makes its entries up as they are asked for.
type stream struct {
	*generator
	n, counts int // of profiles, and of counts of each
	took      time.Duration
}

func (s *stream) EntriesAfter(_ context.Context, revision int64, limit int) ([]relay.Entry, error) {
	began := time.Now()
	defer func() { s.took += time.Since(began) }()
	var list []relay.Entry
	for i := int(revision); i < s.n && len(list) < limit; i++ {
		e := s.entry(i + 1)
		e.Revision = int64(i + 1)
		list = append(list, e)
	}
	return list, nil
}

func BenchmarkIndex(b *testing.B) {
	for _, n := range benchmarkSizes[1:] {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				bigIndex(b, n)
			}
			b.ReportMetric(float64(n)/big.seconds[n], "profiles/s")
			b.ReportMetric(big.heap[n], "MiB-heap")
			b.ReportMetric(big.disk[n], "MiB-disk")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func BenchmarkSearch(b *testing.B) {
	sizes := []bigSize{{100_000, learnedPerMecha}}
	for _, n := range benchmarkSizes {
		sizes = append(sizes, bigSize{n, 0})
	}
	for _, n := range sizes {
		for _, kind := range []string{"rare", "three-common", "sentence", "long", "name", "facets"} {
			for _, clients := range []int{1, 8} {
				b.Run(fmt.Sprintf("%v/%s/clients=%d", n, kind, clients), func(b *testing.B) {
					x := bigIndexThatLearned(b, n)
					g := newGenerator(b, 42)
					g.text(1000)
					times := make([][]time.Duration, clients)
					var partial atomic.Int64
					var all sync.WaitGroup
					b.ResetTimer()
					for c := range clients {
						requests := make([]search.Request, 64)
						for i := range requests {
							requests[i] = request(g, kind)
							requests[i].Caller = relay.Address(fmt.Sprintf("client%d^bench", c))
						}
						all.Go(func() {
							for i := c; i < b.N; i += clients {
								began := time.Now()
								r, err := x.Search(context.Background(), requests[i/clients%len(requests)])
								if err != nil && err != error(search.ErrBusy) {
									b.Error(err)
								}
								if err == nil && r.Partial {
									partial.Add(1)
								}
								times[c] = append(times[c], time.Since(began))
							}
						})
					}
					all.Wait()
					b.StopTimer()
					sorted := slices.Concat(times...)
					slices.Sort(sorted)
					b.ReportMetric(float64(partial.Load()), "partial")
					b.ReportMetric(float64(sorted[len(sorted)/2].Microseconds()), "p50-µs")
					b.ReportMetric(float64(sorted[len(sorted)*99/100].Microseconds()), "p99-µs")
				})
			}
		}
	}
}

func request(g *generator, kind string) search.Request {
	r := search.Request{}
	switch kind {
	case "rare":
		r.Query = g.words[len(g.words)-1-g.rand.IntN(1000)]
	case "three-common":
		r.Query = strings.Join([]string{g.words[g.rand.IntN(30)], g.words[g.rand.IntN(30)], g.words[g.rand.IntN(30)]}, " ")
	case "sentence":
		r.Query = "please find me someone who can " + g.text(8) + "."
	case "long":
		r.Query = clipQuery(g.text(64))
	case "name":
		r.Query = g.word() + " " + g.word()[:3]
	case "facets":
		r.Query, r.Facets = g.text(3), []string{"crew", "tags", "languages"}
	}
	return r
}
