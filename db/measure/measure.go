// Package measure has counters and histograms that cost a few nanoseconds to write. The
// store, the sockets, the search and the API keep theirs in fields, and a scrape reads
// them. The package knows neither the relay nor the form in which the numbers are shown.
//
// All types are safe for concurrent use. A reader may see one of two writes of the
// same moment without the other.
package measure

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// PerOctave is how many buckets a Histogram has for each doubling of the value. So
// a bucket is 19 % wide. It is schema 2 of Prometheus's native histograms, whose
// boundaries are the powers of 2^(1/4) in the histogram's unit.
const PerOctave = 4

// A Histogram counts values in buckets that never grow in number. Make it with
// NewDurations or NewSizes; a nil Histogram drops all values.
type Histogram struct {
	layout *layout
	counts []atomic.Uint64 // of the buckets of layout, and of values above them
	sum    atomic.Int64
}

// layout is the buckets of a kind of histogram.
type layout struct {
	unit   float64 // of one unit of the snapshot, in those of Observe
	lowest int     // the first bucket ends at 2^(lowest/PerOctave) units
	ends   []int64 // the greatest value of each bucket
}

func newLayout(unit float64, fromOctave, toOctave int) *layout {
	l := &layout{unit: unit, lowest: fromOctave * PerOctave}
	for i := l.lowest; i <= toOctave*PerOctave; i++ {
		l.ends = append(l.ends, int64(math.Exp2(float64(i)/PerOctave)*unit))
	}
	return l
}

var (
	durations = newLayout(float64(time.Second), -20, 7) // one microsecond to two minutes: 109 buckets
	sizes     = newLayout(1, 0, 12)                     // 1 to 4096
)

// NewDurations makes a histogram of durations, whose snapshot is in seconds.
func NewDurations() *Histogram { return newHistogram(durations) }

// NewSizes makes a histogram of whole numbers from 0.
func NewSizes() *Histogram { return newHistogram(sizes) }

func newHistogram(l *layout) *Histogram {
	return &Histogram{layout: l, counts: make([]atomic.Uint64, len(l.ends)+1)}
}

// Observe counts a duration. A negative one, as after the clock was set, counts as 0.
func (h *Histogram) Observe(d time.Duration) { h.observe(int64(d)) }

// ObserveSize counts a whole number.
func (h *Histogram) ObserveSize(n int) { h.observe(int64(n)) }

func (h *Histogram) observe(v int64) {
	if h == nil {
		return
	}
	v = max(v, 0)
	i, _ := slices.BinarySearch(h.layout.ends, v)
	h.counts[i].Add(1)
	h.sum.Add(v)
}

// A Snapshot is the state of a Histogram at a time.
type Snapshot struct {
	Lowest  int      // the first bucket ends at 2^(Lowest/PerOctave), and begins at 0
	Buckets []uint64 // each ends at 2^(1/PerOctave) times the end of the one before
	Above   uint64   // values above all buckets
	Count   uint64   // of all values
	Sum     float64  // of all values
}

// Snapshot reads the histogram. Times are in seconds.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Lowest: h.layout.lowest, Buckets: make([]uint64, len(h.layout.ends)),
		Sum: float64(h.sum.Load()) / h.layout.unit}
	for i := range s.Buckets {
		s.Buckets[i] = h.counts[i].Load()
		s.Count += s.Buckets[i]
	}
	s.Above = h.counts[len(s.Buckets)].Load()
	s.Count += s.Above
	return s
}

// Counts has a counter for each of a fixed set of names. All other names count under
// Other, so that no client can make more counters. Make it with NewCounts.
type Counts struct {
	at     map[string]int
	names  []string
	counts []atomic.Int64
}

// Other is the name under which Counts counts unknown names.
const Other = "other"

// NewCounts makes the counters of these names, and one for all others.
func NewCounts(names ...string) *Counts {
	c := &Counts{at: make(map[string]int, len(names)), names: append(slices.Clone(names), Other)}
	for i, name := range names {
		c.at[name] = i
	}
	c.counts = make([]atomic.Int64, len(c.names))
	return c
}

// Add adds one to the count of a name.
func (c *Counts) Add(name string) {
	i, known := c.at[name]
	if !known {
		i = len(c.counts) - 1
	}
	c.counts[i].Add(1)
}

// Each calls f with every name and its count, in the order of NewCounts; Other is the last.
func (c *Counts) Each(f func(name string, count int64)) {
	for i, name := range c.names {
		f(name, c.counts[i].Load())
	}
}
