// Package metrics shows the measurements of a running relay in the forms that
// Prometheus reads. The packages of the relay only count (db/measure); this one asks
// them when a program wants to know, and is the only one that knows Prometheus.
//
// No metric has a label whose values a client chooses. So the number of series is
// fixed, whatever clients do.
//
// A measurement has its name in descriptions.go; a test wants a row on the page "watching". Words
// that are not known are counted under measure.Other.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"relay/db"
	"relay/db/look/backlog"
	relayhttp "relay/http"
	"relay/search"
	"relay/ws"
)

// Sources are the parts of a relay that are measured. All are required.
type Sources struct {
	DB      *db.DB
	Hub     *ws.Hub
	API     *relayhttp.Server
	Index   *search.Service
	Version relayhttp.Version
}

// Metrics are the metrics of one relay. Make them with New; Close ends their background work. They are safe for
// concurrent use.
type Metrics struct {
	sources  Sources
	slow     *slowCounts
	registry *prometheus.Registry
	scrapes  turns // of the scrapes under way
	rendered turns // of those whose answer is made
}

// New makes the metrics of a relay, including the Go runtime's and the process's.
func New(s Sources) *Metrics {
	m := &Metrics{sources: s, slow: newSlowCounts(s.DB.Path()), registry: prometheus.NewRegistry(),
		scrapes: make(turns, maxScrapes), rendered: make(turns, maxRendered)}
	m.registry.MustRegister(m, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler answers scrapes (scrape.go).
func (m *Metrics) Handler() http.Handler { return http.HandlerFunc(m.scrape) }

// Close waits for the counting that a scrape has begun.
func (m *Metrics) Close() { m.slow.close() }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range all {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	c := collected{to}
	s := m.sources
	c.gauge(buildInfo, 1, s.Version.Version, s.Version.Commit, s.Version.Go)
	m.collectStore(c)
	m.collectLive(c)
	m.collectSearch(c)
	m.collectSlow(c)
}

func (m *Metrics) collectStore(c collected) {
	d := m.sources.DB
	counts := d.Measures()
	c.counter(sent, counts.Sent.Load())
	c.counter(toCrews, counts.ToCrews.Load())
	c.counter(expired, counts.Expired.Load())
	c.counter(overdue, counts.Overdue.Load())
	c.counter(claimed, counts.Claimed.Load())
	c.counter(returned, counts.Returned.Load())
	c.counter(spent, counts.Spent.Load())
	c.counter(full, counts.Full.Load())
	c.counter(removed, counts.Removed.Load())
	c.counts(acks, counts.Acks)
	c.counter(commitFailures, counts.Failures.Load())
	c.histogram(commitWrites, counts.Writes)
	c.histogram(commitSeconds, counts.Commit)
	c.histogram(syncSeconds, counts.Sync)
	c.histogram(queueWait, counts.Queued)
	length, oldest := d.Queue()
	c.gauge(queueLength, float64(length))
	c.gauge(queueOldest, oldest.Seconds())
	c.histogram(waits, counts.KeyWait, "read_key")
	c.histogram(waits, counts.PointWait, "read_point")
	c.histogram(waits, counts.ScanWait, "read_scan")
	c.gauge(unindexed, float64(d.Unindexed()))
	space := backlog.SpaceOf(d.Path())
	c.gauge(fileBytes, float64(space.File))
	c.gauge(logBytes, float64(space.Log))
	if space.DiskFree >= 0 {
		c.gauge(diskFree, float64(space.DiskFree))
	}
	c.bool(accepting, d.AcceptsMessages())
	c.bool(writable, d.CheckWritable() == nil && d.Failed() == nil)
}

func (m *Metrics) collectLive(c collected) {
	live, api := m.sources.Hub.Measures(), m.sources.API.Measures()
	c.counter(pushed, live.Pushed.Load())
	c.histogram(pushLag, live.Lag)
	c.histogram(waits, live.FrameWait, "frame")
	listening, polls, mechas := m.sources.Hub.Listeners()
	c.gauge(sockets, float64(listening))
	c.gauge(longPolls, float64(polls))
	c.gauge(online, float64(mechas))
	c.counter(requests, int64(m.sources.API.Requests()))
	c.counts(refusals, api.Refused, "http")
	c.counts(refusals, live.Refused, "socket")
	c.histogram(waits, api.BodyWait, "body")
}

func (m *Metrics) collectSearch(c collected) {
	api, p := m.sources.API.Measures(), m.sources.Index.Progress()
	c.counts(searches, api.Searches)
	c.histogram(searchSeconds, api.SearchTime)
	c.histogram(waits, m.sources.Index.Waits(), "search")
	c.gauge(indexMechas, float64(p.Entries))
	c.bool(indexReady, p.Ready)
}

func (m *Metrics) collectSlow(c collected) {
	if lag, err := m.slow.lag(m.sources.Index.Progress().Revision); err == nil { // else nobody knows it
		c.gauge(indexLag, lag.Seconds())
	}
	pending, known := m.slow.get()
	if !known {
		return // the first count is under way: there is no number yet
	}
	for i, age := range backlog.Ages {
		c.gauge(pendingMessages, float64(pending.Older[i]), ageName(age))
	}
	c.gauge(pendingOldest, pending.Oldest.Seconds())
}
