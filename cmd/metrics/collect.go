package metrics

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"relay/db/measure"
)

// collected sends metrics to a scrape.
type collected struct{ to chan<- prometheus.Metric }

func number(n time.Duration) string { return strconv.FormatInt(int64(n), 10) }

func (c collected) gauge(d *prometheus.Desc, v float64, labels ...string) {
	c.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (c collected) bool(d *prometheus.Desc, v bool) {
	n := 0.0
	if v {
		n = 1
	}
	c.gauge(d, n)
}

func (c collected) counter(d *prometheus.Desc, n int64) {
	c.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
}

// counts sends a counter for each name; the name is the last label.
func (c collected) counts(d *prometheus.Desc, all *measure.Counts, labels ...string) {
	all.Each(func(name string, n int64) {
		c.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n),
			append(labels[:len(labels):len(labels)], name)...)
	})
}

// schema is the schema of a native histogram with the buckets of measure.Histogram.
const schema = 2

// histogram sends a histogram that has classic buckets and native ones. The number of the native buckets is the
// source's, which is fixed.
func (c collected) histogram(d *prometheus.Desc, h *measure.Histogram, labels ...string) {
	s := h.Snapshot()
	native, below := map[int]int64{}, uint64(0)
	var classic []*dto.Bucket
	for i, n := range s.Buckets {
		at := s.Lowest + i
		if n > 0 && i > 0 { // the first begins at 0: it is the zero bucket
			native[at] = int64(n)
		}
		if below += n; at%measure.PerOctave == 0 && at >= classicFrom {
			classic = append(classic, &dto.Bucket{UpperBound: ptr(math.Exp2(float64(at) / measure.PerOctave)),
				CumulativeCount: ptr(below)})
		}
	}
	if s.Above > 0 {
		native[s.Lowest+len(s.Buckets)] = int64(s.Above)
	}
	zero := math.Exp2(float64(s.Lowest) / measure.PerOctave)
	m, err := prometheus.NewConstNativeHistogram(d, s.Count, s.Sum, native, nil, s.Buckets[0], schema, zero,
		began, labels...)
	if err != nil {
		c.to <- prometheus.NewInvalidMetric(d, err)
		return
	}
	c.to <- both{m, classic}
}

// classicFrom is the least end of a classic bucket, in the index of native ones: 2^-14 s,
// 61 µs. Nothing that is measured is worth telling apart below.
const classicFrom = -14 * measure.PerOctave

// began is when the histograms were empty.
var began = time.Now()

// both is a native histogram with additional classic buckets.
type both struct {
	prometheus.Metric
	classic []*dto.Bucket
}

func (b both) Write(m *dto.Metric) error {
	if err := b.Metric.Write(m); err != nil {
		return err
	}
	m.Histogram.Bucket = b.classic
	return nil
}

func ptr[T any](v T) *T { return &v }
