package console

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"relay/db/look/browse"
	"relay/db/look/survey"
)

// healthPage is what pages/health.html shows.
type healthPage struct {
	Verdict
	File     survey.FileState
	Serving  browse.Serving
	Health   *ServerHealth // nil: the console is a process of its own
	Plots    []plot
	Refused  []Count
	Mechas   int
	Pending  int
	More     bool // Pending is the least that there can be
	Busiest  time.Duration
	Settings []Setting
}

// lowDisk is how little free space is a trouble, whatever the server's own floor is.
const lowDisk = 256 << 20

var freeSpace = do("Make space on the disk: the relay then accepts messages again automatically.")

var startServer = advice{"Start the server:", "relay serve"}

// refuses says that the server has too little space on its disk to accept messages.
func refuses(v ServerHealth, free int64) string {
	space := "the free space on its disk"
	if free >= 0 {
		space += ", " + size(free) + ","
	}
	limit := "its limit"
	if v.MinFreeDisk > 0 {
		limit += " of " + size(v.MinFreeDisk)
	}
	return "The relay refuses new messages: " + space + " is below " + limit + "."
}

func lowOn(free int64) string { return fmt.Sprintf("Only %s are free on the disk.", size(free)) }

// showHealth makes the page at /health.
func (c *Console) showHealth(r *http.Request) (any, error) {
	now := c.config.Now()
	s, err := c.config.Store.FileState()
	if err != nil {
		return nil, err
	}
	o, err := c.overview(r.Context())
	if err != nil {
		return nil, err
	}
	p := &healthPage{File: s, Serving: o.Serving, Mechas: o.Mechas, Pending: o.Pending, More: o.More}
	hour := c.flow.hour.hour(now)
	if c.config.Live != nil {
		v := c.config.Live.Health()
		p.Health, p.Refused, p.Settings = &v, v.Refused, v.Settings
		slices.SortFunc(p.Refused, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Code, b.Code)) })
		for _, h := range []struct{ key, name string }{{CommitTime, "Commit, p99"}, {SyncTime, "fsync, p99"},
			{QueueTime, "Queue, p99"}, {PushLag, "Push lag, p99"}} {
			p.Plots = append(p.Plots, draw(h.name, &hour, seconds, quantiles(hour.points, h.key, 0.99)))
		}
	}
	p.Plots = append(p.Plots, draw("Events", &hour, rate, hour.whole(func(s *point) float64 { return float64(s.Events) })),
		draw("Slowest ack", &hour, seconds, func(s *point) float64 {
			if s.Acked == 0 {
				return -1
			}
			return s.MaxLag.Seconds()
		}))
	p.Verdict = p.judge()
	return p, nil
}

// judge says in one sentence how the store is.
func (p *healthPage) judge() Verdict {
	switch {
	case p.Health != nil && !p.Health.Writable:
		return Verdict{Text: "The relay cannot write to its database.", Level: 2}
	case p.Health != nil && !p.Health.Accepting:
		return Verdict{Text: refuses(*p.Health, p.File.DiskFree), Level: 2, Next: []advice{freeSpace}}
	case p.Health == nil && p.Serving == browse.NotServed:
		return Verdict{Text: "No server has the file open: nobody delivers.", Level: 2, Next: []advice{startServer}}
	case p.File.DiskFree >= 0 && p.File.DiskFree < lowDisk:
		return Verdict{Text: lowOn(p.File.DiskFree), Level: 2, Next: []advice{freeSpace}}
	case p.Health != nil && p.Health.QueueOldest > time.Second:
		return Verdict{Text: fmt.Sprintf("A write has waited for %s: the disk is slow.", took(p.Health.QueueOldest)),
			Level: 1}
	case p.Health != nil && !p.Health.IndexReady:
		return Verdict{Text: "The search index is being built.", Level: 1}
	}
	return Verdict{Text: "The store is well."}
}

// quantiles returns a function that tells a quantile of what a histogram counted in a span: the
// difference from the last measurement before it. Negative: nothing was counted.
func quantiles(hour []point, name string, q float64) func(*point) float64 {
	last := map[*point]Histogram{}
	var before Histogram
	known := false
	for i := range hour {
		h, ok := hour[i].histograms[name]
		if !ok {
			continue
		}
		if known {
			last[&hour[i]] = minus(h, before)
		}
		before, known = h, true
	}
	return func(p *point) float64 {
		h, ok := last[p]
		if !ok {
			return -1
		}
		return quantile(h, q)
	}
}

// minus returns what a histogram has counted since an earlier state of it.
func minus(h, before Histogram) Histogram {
	d := Histogram{Name: h.Name, Bounds: h.Bounds, Counts: slices.Clone(h.Counts)}
	for i := range min(len(d.Counts), len(before.Counts)) {
		d.Counts[i] -= before.Counts[i]
	}
	return d
}

// quantile returns the bound below which that share of the values lies, in seconds; -1 if there
// are no values.
func quantile(h Histogram, q float64) float64 {
	var all, sum uint64
	for _, n := range h.Counts {
		all += n
	}
	if all == 0 {
		return -1
	}
	want := uint64(math.Ceil(q * float64(all)))
	for i, n := range h.Counts {
		if sum += n; sum >= want && i < len(h.Bounds) {
			return h.Bounds[i].Seconds()
		}
	}
	return h.Bounds[len(h.Bounds)-1].Seconds()
}

// P50 and P99 are quantiles since the start of the server.
func (h Histogram) P50() string { return showQuantile(h, 0.5) }

// P99 is like P50.
func (h Histogram) P99() string { return showQuantile(h, 0.99) }

func showQuantile(h Histogram, q float64) string {
	if s := quantile(h, q); s >= 0 {
		return seconds(s)
	}
	return "–"
}
