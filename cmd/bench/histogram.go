package bench

import (
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets that are at most 1/128 of their value
// wide, so a quantile is right to 0.4 %, and costs no memory per duration.
// The zero value is empty. It belongs to one goroutine.
type Histogram struct {
	count   uint64
	buckets [(maxExponent + 1) << subBits]uint64
}

const (
	subBits     = 7
	maxExponent = 34 // about 36 minutes; what is longer counts as that
)

// Record counts one duration.
func (h *Histogram) Record(d time.Duration) {
	h.buckets[bucketOf(max(d, 0))]++
	h.count++
}

// Values below 1<<subBits have a bucket each; above, every power of two has
// 1<<subBits of them.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	exponent := bits.Len64(v>>subBits) - 1 // of the power of two, above the exact ones
	if exponent < 0 {
		return int(v)
	}
	if exponent >= maxExponent {
		return (maxExponent+1)<<subBits - 1
	}
	return (exponent+1)<<subBits + int(v>>exponent) - 1<<subBits
}

// middle is the value that stands for a bucket.
func middle(bucket int) time.Duration {
	exponent := bucket>>subBits - 1
	if exponent < 0 {
		return time.Duration(bucket)
	}
	low := uint64(bucket&(1<<subBits-1)|1<<subBits) << exponent
	return time.Duration(low + 1<<exponent/2)
}

// Add counts what another histogram has counted.
func (h *Histogram) Add(other *Histogram) {
	h.count += other.count
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
}

// Count is how many durations were recorded.
func (h *Histogram) Count() int { return int(h.count) }

// Quantile gives the duration that a share q of all, from 0 to 1, does not
// exceed; 0 if nothing was recorded.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := max(uint64(q*float64(h.count)+0.999999), 1)
	for i, n := range h.buckets {
		if n >= rank {
			return middle(i)
		}
		rank -= n
	}
	return 0
}
