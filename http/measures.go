package http

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"relay/db/measure"
	"relay/db/relay"
)

// Measures counts what a server has done since it was made. Only the server writes;
// anybody may read, at any time.
type Measures struct {
	Refused    *measure.Counts // requests that got a problem document, by its code
	Searches   *measure.Counts // by their outcome: complete, partial, refused
	SearchTime *measure.Histogram
	BodyWait   *measure.Histogram // of requests with large bodies that waited for their turn
}

// The outcomes of searches. A partial one ran out of its time.
const (
	searchComplete = "complete"
	searchPartial  = "partial"
	searchRefused  = "refused"
)

func newMeasures(bodies *measure.Histogram) *Measures {
	return &Measures{
		Refused:    measure.NewCounts(relay.CodeNames()...),
		Searches:   measure.NewCounts(searchComplete, searchPartial, searchRefused),
		SearchTime: measure.NewDurations(), BodyWait: bodies,
	}
}

// Measures returns the counts of this server. Safe for concurrent use.
func (s *Server) Measures() *Measures { return s.measures }

// Requests returns how many requests the server has taken. Safe for concurrent use.
func (s *Server) Requests() uint64 { return s.idCount.Load() }

func (m *Measures) searched(r *relay.SearchResult, err error, took time.Duration) {
	m.SearchTime.Observe(took)
	switch {
	case err != nil:
		m.Searches.Add(searchRefused)
	case r.Partial:
		m.Searches.Add(searchPartial)
	default:
		m.Searches.Add(searchComplete)
	}
}

// IsLocal reports whether a program on this machine has sent the request. If this machine has a
// trusted proxy, no request counts as such: what it sends is forwarded.
func (s *Server) IsLocal(r *http.Request) bool { return FromThisMachine(r) && !s.trusts(peerOf(r)) }

// FromThisMachine reports whether a program on this machine has sent the request: it came
// over loopback, it names a loopback address as its host, and nothing says that a proxy
// has forwarded it. The host matters because a page of a browser on this machine may
// have a name that leads here (DNS rebinding), the version because many proxies speak
// HTTP/1.0 unless told otherwise. A proxy on this machine that hides all that cannot be
// told from a program. A page of another site is refused, too, although
// the browser would not show it the answer.
func FromThisMachine(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site") // only browsers send it
	return peerOf(r).IsLoopback() && isLoopbackHost(r.Host) && r.ProtoAtLeast(1, 1) && !forwarded(r.Header) &&
		(site == "" || site == "none" || site == "same-origin")
}

// isLoopbackHost reports whether a host, as of a Host header, with a port or without, is this machine.
func isLoopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// forwarded reports whether a header is there that only proxies add.
func forwarded(h http.Header) bool {
	for name := range h {
		switch {
		case strings.HasPrefix(name, "X-Forwarded"), strings.HasPrefix(name, "X-Real-"), strings.HasPrefix(name, "Cf-"):
			return true
		case name == "Forwarded", name == "Via", name == "X-Client-Ip", name == "X-Cluster-Client-Ip",
			name == "True-Client-Ip", name == "X-Envoy-External-Address":
			return true
		}
	}
	return false
}
