package console

import (
	"sync"
	"time"

	"relay/db/look/survey"
)

const (
	spanLength = time.Minute
	spans      = 60 // an hour
)

// series has what happened in the last hour, a span for each minute. It is safe for
// concurrent use.
type series struct {
	mu      sync.Mutex
	spans   map[int64]*point
	from    time.Time // before this time, nothing is known
	counted bool      // what happened before the console's start is in spans
}

// point is a span, with what was measured at its end.
type point struct {
	survey.Span
	pending    int // messages; -1: not measured
	histograms map[string]Histogram
}

// add adds what happened.
func (s *series) add(all []survey.Span, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range all {
		s.at(span.Begin).Add(span)
	}
	for n := range s.spans {
		if now.Sub(time.Unix(0, n*int64(spanLength))) > (spans+1)*spanLength {
			delete(s.spans, n)
		}
	}
}

// at returns the point of a time. s.mu is held.
func (s *series) at(t time.Time) *point {
	n := t.UnixNano() / int64(spanLength)
	if s.spans == nil {
		s.spans = map[int64]*point{}
	}
	p := s.spans[n]
	if p == nil {
		p = &point{Span: survey.Span{Begin: time.Unix(0, n*int64(spanLength))}, pending: -1}
		s.spans[n] = p
	}
	return p
}

// measured notes what was measured now.
func (s *series) measured(now time.Time, pending int, histograms []Histogram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.at(now)
	if pending >= 0 {
		p.pending = pending
	}
	if len(histograms) > 0 {
		p.histograms = map[string]Histogram{}
		for _, h := range histograms {
			p.histograms[h.Name] = h
		}
	}
}

// lastHour is what is known of the last hour.
type lastHour struct {
	points  []point   // in order, including those in which nothing happened
	from    time.Time // of points before this time, nothing is known; until the hour is counted, of none
	counted bool
	total   survey.Span // of all points
}

// hour returns the last hour.
func (s *series) hour(now time.Time) lastHour {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := lastHour{from: s.from, counted: s.counted}
	if !h.counted {
		h.forget(now)
	}
	last := now.UnixNano() / int64(spanLength)
	for n := last - spans + 1; n <= last; n++ {
		p := s.spans[n]
		if p == nil {
			p = &point{Span: survey.Span{Begin: time.Unix(0, n*int64(spanLength))}, pending: -1}
		}
		h.points = append(h.points, *p)
		h.total.Add(p.Span)
	}
	return h
}

// forget makes it an hour of which nothing is counted yet.
func (h *lastHour) forget(now time.Time) { h.from, h.counted = now.Add(time.Hour), false }

// whole returns a function with the results of another one, but without the minute that runs, which
// has had less time than the others.
func (h *lastHour) whole(value func(*point) float64) func(*point) float64 {
	last := &h.points[len(h.points)-1]
	return func(p *point) float64 {
		if p == last {
			return -1
		}
		return value(p)
	}
}

// begin adds what happened before the console's start: all since from is counted.
func (s *series) begin(from time.Time, all []survey.Span, now time.Time) {
	s.add(all, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from, s.counted = from, true
}

// pendingNow fills in how many messages were pending at the end of each span, from how many
// are now and what was sent and settled since.
func pendingNow(all []point, now int) {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].pending >= 0 {
			now = all[i].pending
		} else {
			all[i].pending = max(now, 0)
		}
		now -= all[i].Sent - all[i].Acked - all[i].Expired
	}
}
