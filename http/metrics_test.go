package http_test

import (
	nethttp "net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"relay/db/relay"
)

// Metrics are for programs on the relay's own machine that ask it directly.
func TestMetricsAreForThisMachineAlone(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	for _, c := range []struct {
		name, peer, host string
		proto            string // "": HTTP/1.1
		header           []string
		shown            bool
	}{
		{name: "a program here", peer: "127.0.0.1:40000", host: "127.0.0.1:8080", shown: true},
		{name: "by IPv6", peer: "[::1]:40000", host: "[::1]:8080", shown: true},
		{name: "IPv4 in IPv6", peer: "[::ffff:127.0.0.1]:40000", host: "localhost", shown: true},
		{name: "a browser's address line", peer: "127.0.0.1:40000", host: "localhost:8080", header: []string{"Sec-Fetch-Site", "none"}, shown: true},
		{name: "another machine", peer: "10.0.0.7:40000", host: "127.0.0.1:8080"},
		{name: "another machine that says otherwise", peer: "10.0.0.7:40000", host: "localhost", header: []string{"X-Forwarded-For", "127.0.0.1"}},
		{name: "a proxy", peer: "127.0.0.1:40000", host: "127.0.0.1:8080", header: []string{"X-Forwarded-For", "127.0.0.1"}},
		{name: "a proxy of another kind", peer: "127.0.0.1:40000", host: "127.0.0.1:8080", header: []string{"Via", "1.1 x"}},
		{name: "RFC 7239", peer: "127.0.0.1:40000", host: "127.0.0.1:8080", header: []string{"Forwarded", "for=127.0.0.1"}},
		{name: "another usual header", peer: "127.0.0.1:40000", host: "127.0.0.1:8080", header: []string{"x-real-ip", "127.0.0.1"}},
		{name: "a proxy that keeps the name", peer: "127.0.0.1:40000", host: "relay.example.com"},
		{name: "a name that was made to lead here", peer: "127.0.0.1:40000", host: "evil.example:8080"},
		{name: "a name that begins like it", peer: "127.0.0.1:40000", host: "127.0.0.1.evil.example"},
		{name: "a page of another site", peer: "127.0.0.1:40000", host: "127.0.0.1:8080", header: []string{"Sec-Fetch-Site", "cross-site"}},
		{name: "a proxy that says nothing", peer: "127.0.0.1:40000", host: "127.0.0.1:8080", proto: "HTTP/1.0"},
		{name: "no host", peer: "127.0.0.1:40000", host: ""},
	} {
		q := httptest.NewRequest("GET", "/metrics", nil)
		q.RemoteAddr, q.Host = c.peer, c.host
		if c.proto != "" {
			q.Proto, q.ProtoMajor, q.ProtoMinor = c.proto, 1, 0
		}
		for i := 0; i+1 < len(c.header); i += 2 {
			q.Header.Set(c.header[i], c.header[i+1])
		}
		w := httptest.NewRecorder()
		r.api.ServeHTTP(w, q)
		if shown := w.Code == 200 && strings.HasPrefix(w.Body.String(), "# "); shown != c.shown {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		if !c.shown && !strings.Contains(w.Body.String(), string(relay.NotFound)) {
			t.Errorf("%s: %s", c.name, w.Body)
		}
	}
	proxied := mustServe(t, func(s *settings) { s.api.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	proxied.anyone("GET", "/metrics").wantProblem(nethttp.StatusNotFound, relay.NotFound)
}

// /readyz names its parts: those that are needed decide the status.
func TestReadyzNamesItsParts(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.db.MinFreeDisk = 1 << 62 })
	var answer struct {
		Status string
		Parts  []struct {
			Name, Detail  string
			Ready, Needed bool
		}
	}
	want := func(status int, unready ...string) {
		t.Helper()
		r.anyone("GET", "/readyz").want(status).into(&answer)
		var found []string
		for _, p := range answer.Parts {
			if !p.Ready {
				found = append(found, p.Name)
			}
			if p.Ready != (p.Detail == "") {
				t.Errorf("%s is ready: %t, for %q", p.Name, p.Ready, p.Detail)
			}
		}
		if strings.Join(found, " ") != strings.Join(unready, " ") || len(answer.Parts) != 5 {
			t.Errorf("not ready: %v of %v; want %v", found, answer.Parts, unready)
		}
	}
	for !r.index.Ready() { // it is a moment after the start
		r.index.Wake()
	}
	want(200, "disk")
	r.api.Drain()
	r.anyone("GET", "/readyz").wantProblem(503, relay.ShuttingDown)
	body := r.anyone("GET", "/readyz").body
	if !strings.Contains(string(body), `"parts":[{"name":"requests","ready":false,"needed":true,`) {
		t.Errorf("%s", body)
	}
}
