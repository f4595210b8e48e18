package measure_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"relay/db/measure"
)

// Every value is in the bucket whose bounds hold it, and each is counted once.
func TestAValueIsCountedInItsBucket(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		d := time.Duration(math.Exp2(random.Float64()*42 - 2)) // from nothing to half an hour
		h := measure.NewDurations()
		h.Observe(d)
		s := h.Snapshot()
		if s.Count != 1 || math.Abs(s.Sum-d.Seconds()) > 1e-9 {
			t.Fatalf("%v: %+v", d, s)
		}
		for i, n := range s.Buckets {
			end := math.Exp2(float64(s.Lowest+i) / measure.PerOctave)
			begin := math.Exp2(float64(s.Lowest+i-1) / measure.PerOctave)
			if i == 0 {
				begin = -1
			}
			if inside := d.Seconds() > begin-1e-9 && d.Seconds() <= end+1e-9; n == 1 && !inside {
				t.Errorf("%v is counted in the bucket from %g to %g", d, begin, end)
			}
		}
		if longest := math.Exp2(float64(s.Lowest+len(s.Buckets)-1) / measure.PerOctave); (s.Above == 1) != (d.Seconds() > longest) {
			t.Errorf("%v: %d above %g s", d, s.Above, longest)
		}
	}
}

// The end of a bucket belongs to it: a histogram of sizes is exact at the powers of two.
func TestTheEndOfABucketBelongsToIt(t *testing.T) {
	for octave := range 13 {
		h := measure.NewSizes()
		h.ObserveSize(1 << octave)
		if s := h.Snapshot(); s.Buckets[octave*measure.PerOctave] != 1 {
			t.Errorf("%d: %v", 1<<octave, s.Buckets)
		}
	}
}

// A clock that is set back, and a histogram that nobody reads, do no harm.
func TestOddValues(t *testing.T) {
	var none *measure.Histogram
	none.Observe(time.Second)
	h := measure.NewDurations()
	h.Observe(-time.Hour)
	h.Observe(math.MaxInt64 / 2)
	if s := h.Snapshot(); s.Count != 2 || s.Buckets[0] != 1 || s.Above != 1 || s.Sum < 0 {
		t.Errorf("%+v", s)
	}
}

func TestCountsHaveAFixedSetOfNames(t *testing.T) {
	c := measure.NewCounts("completed", "failed")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				c.Add([]string{"completed", "failed", "made_up", ""}[i%4])
			}
		})
	}
	all.Wait()
	got := map[string]int64{}
	c.Each(func(name string, n int64) { got[name] = n })
	if len(got) != 3 || got["completed"] != 200 || got["failed"] != 200 || got[measure.Other] != 400 {
		t.Errorf("%v", got)
	}
}

func BenchmarkObserve(b *testing.B) {
	h := measure.NewDurations()
	b.RunParallel(func(p *testing.PB) {
		for d := time.Duration(1); p.Next(); d = d*3%time.Minute + 1 {
			h.Observe(d)
		}
	})
}
