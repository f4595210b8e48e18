package metrics

import (
	"bytes"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/prometheus/common/expfmt"
)

// This file answers scrapes. It first makes the whole answer, and then sends it. So a
// program that takes its answer slowly does not keep others from theirs.

const (
	// maxScrapes are under way at once; more wait. At --metrics-addr there are no more
	// connections than that, so none of them waits.
	maxScrapes = 64
	// maxRendered are rendered at once. That takes milliseconds.
	maxRendered = 4
)

// turns bounds how many do something at once.
type turns chan struct{}

// take waits for a turn, or until the client has gone; then it returns false.
func (t turns) take(r *http.Request) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (t turns) give() { <-t }

// scrape answers in text or in protobuf, as the program asks. Only protobuf has native
// histograms.
func (m *Metrics) scrape(w http.ResponseWriter, r *http.Request) {
	if !m.scrapes.take(r) {
		return
	}
	defer m.scrapes.give()
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	body, ok := m.render(r, format)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", string(format))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) // an error means that the program has gone
}

// render makes the body of an answer. ok is false if the client has gone meanwhile.
func (m *Metrics) render(r *http.Request, format expfmt.Format) (body []byte, ok bool) {
	if !m.rendered.take(r) {
		return nil, false
	}
	defer m.rendered.give()
	families, err := m.registry.Gather()
	if err != nil { // the others are still shown
		slog.Error("some metrics cannot be shown", "error", err)
	}
	var b bytes.Buffer
	encoder := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			slog.Error("a metric cannot be shown", "metric", f.GetName(), "error", err)
		}
	}
	return b.Bytes(), true
}
