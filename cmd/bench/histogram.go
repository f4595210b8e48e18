package bench

import (
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets. A bucket is at most 1/128 of its value
// wide, so a quantile is right to 0.4 %; recording takes no memory. The zero value
// is empty. One goroutine at a time may use it.
type Histogram struct {
	count   uint64
	buckets [(maxExponent + 1) << subBits]uint64
}

const (
	subBits     = 7
	maxExponent = 34 // about 36 minutes; longer durations count as that
)

// Record counts one duration.
func (h *Histogram) Record(d time.Duration) {
	h.buckets[bucketOf(max(d, 0))]++
	h.count++
}

// bucketOf returns the bucket of a value. Values below 1<<subBits have a bucket
// each. Above, every power of two has 1<<subBits buckets.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	exponent := bits.Len64(v>>subBits) - 1 // which power of two above the values with a bucket each
	if exponent < 0 {
		return int(v)
	}
	if exponent >= maxExponent {
		return (maxExponent+1)<<subBits - 1
	}
	return (exponent+1)<<subBits + int(v>>exponent) - 1<<subBits
}

// middle returns the value that stands for a bucket.
func middle(bucket int) time.Duration {
	exponent := bucket>>subBits - 1
	if exponent < 0 {
		return time.Duration(bucket)
	}
	low := uint64(bucket&(1<<subBits-1)|1<<subBits) << exponent
	return time.Duration(low + 1<<exponent/2)
}

// Add adds the counts of another histogram.
func (h *Histogram) Add(other *Histogram) {
	h.count += other.count
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() int { return int(h.count) }

// Quantile returns the duration that a share q of all durations, from 0 to 1,
// does not exceed; 0 if nothing was recorded.
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
