package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQuantilesAreRightToOnePerCent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() float64{
		"uniform":   func() float64 { return r.Float64() * 1e7 },
		"lognormal": func() float64 { return math.Exp(r.NormFloat64()*2) * 1e5 },
		"tiny":      func() float64 { return float64(r.IntN(300)) },
		"constant":  func() float64 { return 123_456_789 },
	} {
		for _, n := range []int{1, 2, 10, 999, 100_000} {
			var parts [2]Histogram
			exact := make([]time.Duration, n)
			for i := range exact {
				exact[i] = time.Duration(draw())
				parts[i%2].Record(exact[i])
			}
			h := &parts[0]
			h.Add(&parts[1])
			slices.Sort(exact)
			if h.Count() != n {
				t.Errorf("%s: %d of %d are counted", name, h.Count(), n)
			}
			for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
				want := exact[max(int(math.Ceil(q*float64(n)))-1, 0)]
				got := h.Quantile(q)
				if off := math.Abs(float64(got - want)); off > 0.01*float64(want) {
					t.Errorf("%s, %d durations: quantile %g is %v, not %v", name, n, q, got, want)
				}
			}
		}
	}
}

func TestAHistogramTakesAnyDuration(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("an empty one has a median")
	}
	for _, d := range []time.Duration{-1, 0, 1, math.MaxInt64} {
		h.Record(d)
	}
	if h.Quantile(0.5) != 0 || h.Quantile(0.75) != 1 || h.Quantile(1) < 30*time.Minute {
		t.Errorf("%v %v %v", h.Quantile(0.5), h.Quantile(0.75), h.Quantile(1))
	}
}
