package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// scrape reads the metrics of a relay in a form: "" is text.
func scrape(t *testing.T, url, accept string) (body []byte, contentType expfmt.Format) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v: %s", url, resp.StatusCode, err, body)
	}
	return body, expfmt.ResponseFormat(resp.Header)
}

// families reads what scrape gave.
func families(t *testing.T, body []byte, format expfmt.Format) map[string]*dto.MetricFamily {
	t.Helper()
	all, d := map[string]*dto.MetricFamily{}, expfmt.NewDecoder(bytes.NewReader(body), format)
	for {
		f := &dto.MetricFamily{}
		if err := d.Decode(f); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[f.GetName()] = f
	}
}

// counted waits until scrapes have what is counted next to them.
func counted(t *testing.T, s *server) {
	t.Helper()
	eventually(t, patience, "the pending messages are counted", func() bool { return shows(t, s.url+"/metrics", "relay_messages_pending") })
}

// series names every series of a scrape in text, with its labels.
func series(t *testing.T, body []byte) (all []labels.Labels) {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	found, err := p.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range found {
		endings := []string{""}
		if f.GetType() == dto.MetricType_HISTOGRAM || f.GetType() == dto.MetricType_SUMMARY {
			endings = []string{"_bucket", "_sum", "_count"}
		}
		for _, m := range f.Metric {
			for _, ending := range endings {
				b := labels.NewBuilder(labels.EmptyLabels()).Set(model.MetricNameLabel, name+ending)
				for _, l := range m.Label {
					b.Set(l.GetName(), l.GetValue())
				}
				all = append(all, b.Labels())
			}
		}
	}
	return all
}

// value returns the value of a series; labels are names and values.
func value(t *testing.T, url, name string, with ...string) float64 {
	t.Helper()
	body, format := scrape(t, url, "")
	f := families(t, body, format)[name]
	for _, m := range f.GetMetric() {
		have := map[string]string{}
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		fits := true
		for i := 0; i+1 < len(with); i += 2 {
			fits = fits && have[with[i]] == with[i+1]
		}
		switch {
		case !fits:
		case m.Counter != nil:
			return m.Counter.GetValue()
		case m.Gauge != nil:
			return m.Gauge.GetValue()
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount())
		}
	}
	t.Errorf("there is no %s %v", name, with)
	return -1
}

// Each notice to a sender is counted once.
func TestOverdueMessagesAndFullConversationsAreCounted(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^metrics")[0]
	s := startServer(t, db)
	first := parse[record](t, s.ask(a, "POST", "/api/v1/messages", `{"to":"a^metrics","payload":{},"max_messages":1,"ack_by_seconds":1}`).want(t, http.StatusCreated))
	for range 2 {
		s.ask(a, "POST", "/api/v1/messages", `{"to":"a^metrics","payload":{},"conversation_id":"`+first.ConversationID+`"}`).want(t, http.StatusTooManyRequests)
	}
	for _, name := range []string{"relay_messages_overdue_total", "relay_conversations_full_total"} {
		eventually(t, patience, name, func() bool { return value(t, s.url+"/metrics", name) == 1 })
	}
	if got := value(t, s.url+"/metrics", "relay_messages_expired_total"); got != 0 {
		t.Errorf("%g messages expired", got)
	}
}

// A message whose worker says nothing is redelivered once, and then its attempts are spent.
func TestClaimsAreCounted(t *testing.T) {
	db := tempDB(t)
	a := issue(t, db, "a^metrics")[0]
	s := startServer(t, db, "--max-attempts", "2")
	s.ask(a, "POST", "/api/v1/messages", `{"to":"a^metrics","payload":{}}`).want(t, http.StatusCreated)
	claim := func() {
		s.ask(a, "POST", "/api/v1/mecha/a^metrics/claim", `{"lease_seconds":5,"wait":60}`).want(t, http.StatusOK)
	}
	claim()
	t.Parallel() // the lease ends while other tests begin
	claim()
	for name, want := range map[string]float64{"relay_messages_claimed_total": 2, "relay_messages_returned_total": 1, "relay_messages_attempts_spent_total": 1} {
		eventually(t, patience, name, func() bool { return value(t, s.url+"/metrics", name) == want })
	}
}

// mustUse uses a relay in every way that is measured.
func mustUse(t *testing.T, s *server, a, b agent) {
	t.Helper()
	conn := s.dial(b, "?events=acks,sync")
	read := func(kind string) map[string]any {
		t.Helper()
		for {
			_, frame, err := conn.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if f := parse[map[string]any](t, frame); f["type"] == kind {
				return f
			}
		}
	}
	for read("sync")["phase"] != "end" {
	}
	for _, status := range []string{"completed", "made_up_by_a_client"} {
		sent := s.send(a, b.Address, `{"n":1}`)
		if got := read("message")["message_id"]; got != sent.MessageID {
			t.Fatalf("pushed %v, want %s", got, sent.MessageID)
		}
		ack := fmt.Sprintf(`{"type":"ack","message_id":%q,"status":%q,"client_ts":"2026-11-22T08:00:00Z"}`, sent.MessageID, status)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(ack)); err != nil {
			t.Fatal(err)
		}
		read("ack_ok")
	}
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"nonsense"}`)); err != nil {
		t.Fatal(err)
	}
	read("error")
	s.send(b, a.Address, `{"waits":true}`)
	s.ask(a, "POST", "/api/v1/messages", `{"to":"nobody^metrics","payload":{}}`).want(t, http.StatusNotFound)
	s.ask(a, "POST", "/api/v1/search", `{"query":"b"}`).want(t, http.StatusAccepted)
}

// The numbers count what has happened.
func TestMetricsCountWhatHappens(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^metrics", "b^metrics")
	s := startServer(t, db)
	mustUse(t, s, keys[0], keys[1])
	counted(t, s)
	url := s.url + "/metrics"
	for _, want := range []struct {
		n      float64
		name   string
		labels []string
	}{
		{3, "relay_messages_sent_total", nil}, {2, "relay_messages_pushed_total", nil}, {2, "relay_push_lag_seconds", nil},
		{1, "relay_acks_total", []string{"status", "completed"}}, {1, "relay_acks_total", []string{"status", "other"}}, {0, "relay_acks_total", []string{"status", "failed"}},
		{1, "relay_refusals_total", []string{"over", "http", "code", "recipient_not_found"}}, {1, "relay_refusals_total", []string{"over", "socket", "code", "invalid_frame"}},
		{1, "relay_messages_pending", []string{"older_than", "0s"}}, {0, "relay_messages_pending", []string{"older_than", "1m"}},
		{1, "relay_sockets", nil}, {0, "relay_long_polls", nil}, {1, "relay_mechas_online", nil},
		{1, "relay_searches_total", []string{"outcome", "complete"}}, {1, "relay_search_seconds", nil},
		{1, "relay_database_writable", nil}, {1, "relay_accepting_messages", nil}, {0, "relay_commit_failures_total", nil}, {0, "relay_write_queue_length", nil},
		{2, "relay_search_index_mechas", nil}, {1, "relay_build_info", nil},
	} {
		if got := value(t, url, want.name, want.labels...); got != want.n {
			t.Errorf("%s %v is %g, want %g", want.name, want.labels, got, want.n)
		}
	}
	for _, name := range []string{"relay_commit_seconds", "relay_commit_sync_seconds", "relay_commit_writes", "relay_write_queue_wait_seconds",
		"relay_database_file_bytes", "relay_disk_free_bytes", "relay_http_requests_total", "go_goroutines"} {
		if got := value(t, url, name); got <= 0 {
			t.Errorf("%s is %g", name, got)
		}
	}
}

// A client chooses words, codes, paths and methods: none of them makes a series.
func TestClientsMakeNoSeries(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^series", "b^series")
	s := startServer(t, db)
	mustUse(t, s, keys[0], keys[1])
	counted(t, s)
	names := func() (all []string) {
		body, _ := scrape(t, s.url+"/metrics", "")
		for _, l := range series(t, body) {
			if strings.HasPrefix(l.Get(model.MetricNameLabel), "relay_") {
				all = append(all, l.String())
			}
		}
		slices.Sort(all)
		return all
	}
	before := names()
	for i := range 20 {
		word := fmt.Sprintf("word_%d", i)
		sent := s.send(keys[0], "b^series", `{}`)
		s.ask(keys[1], "POST", "/api/v1/messages/"+sent.MessageID+"/ack", fmt.Sprintf(`{"status":%q,"client_ts":"2026-11-22T08:00:00Z"}`, word)).want(t, http.StatusOK)
		s.ask(keys[0], "GET", "/api/v1/"+word, "")
		s.ask(keys[0], strings.ToUpper(word), "/api/v1/whoami", "")
	}
	if after := names(); !slices.Equal(before, after) {
		t.Errorf("%d series before, %d after", len(before), len(after))
	}
	if got := value(t, s.url+"/metrics", "relay_acks_total", "status", "other"); got != 21 {
		t.Errorf("%g other words", got)
	}
}

// A scrape in protobuf has classic buckets and native ones, few of both.
func TestHistogramsHaveClassicAndNativeBuckets(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^buckets", "b^buckets")
	s := startServer(t, db, "--metrics-addr", "127.0.0.1:0")
	mustUse(t, s, keys[0], keys[1])
	url := "http://" + s.await(s.stderr, `serving metrics" addr=(\S+)`)[1] + "/metrics"
	body, format := scrape(t, url, `application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited`)
	histograms := 0
	for name, f := range families(t, body, format) {
		if f.GetType() != dto.MetricType_HISTOGRAM || !strings.HasPrefix(name, "relay_") {
			continue
		}
		for _, m := range f.Metric {
			histograms++
			h, native := m.Histogram, uint64(0)
			at := int64(0)
			for _, d := range h.PositiveDelta {
				at += d
				native += uint64(at)
			}
			if native += h.GetZeroCount(); native != h.GetSampleCount() || h.GetSchema() != 2 || len(h.PositiveDelta) > 160 {
				t.Errorf("%s: %d native values in %d buckets, want %d", name, native, len(h.PositiveDelta), h.GetSampleCount())
			}
			if n := len(h.Bucket); n < 10 || n > 30 || h.Bucket[n-1].GetCumulativeCount() > h.GetSampleCount() {
				t.Errorf("%s has %d classic buckets", name, n)
			}
		}
	}
	for range 3 { // over one connection
		scrape(t, url, "")
	}
	if histograms < 10 {
		t.Errorf("only %d histograms were found", histograms)
	}
	if resp, err := client.Get(s.url + "/metrics"); err != nil || resp.StatusCode != http.StatusNotFound { // they have an address of their own
		t.Errorf("%v, %v", resp, err)
	}
}

// A request that a proxy on this machine forwards gets no metrics.
func TestMetricsAreNotForwarded(t *testing.T) {
	t.Parallel()
	q, err := http.NewRequest("GET", startServer(t, tempDB(t)).url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("X-Forwarded-For", "192.0.2.1")
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	const want = "there is no such path here; metrics are for programs on the relay's own machine, or at --metrics-addr"
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 404 || !strings.Contains(string(text), want) {
		t.Errorf("%d %s, %v", resp.StatusCode, text, err)
	}
}

func TestMetricsAreNamedByTheRules(t *testing.T) {
	t.Parallel()
	s := startServer(t, tempDB(t))
	body, _ := scrape(t, s.url+"/metrics", "")
	problems, err := promlint.New(bytes.NewReader(body)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// queries returns every query of the dashboard and of the alerts.
func queries(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../contrib/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if expr, ok := v["expr"].(string); ok {
				all = append(all, strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(expr))
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	var dashboard any
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	walk(dashboard)
	ofDashboard := len(all)
	if text, err = os.ReadFile("../contrib/alerts.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^        expr: (.+)$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	alerts := strings.Count(string(text), "- alert: ")
	if ofDashboard < 20 || len(all)-ofDashboard != alerts || alerts < 10 {
		t.Fatalf("%d queries of the dashboard, %d of %d alerts", ofDashboard, len(all)-ofDashboard, alerts)
	}
	return all
}

// Every query of contrib parses, and each of its selectors finds a series in a scrape.
func TestTheDashboardAndTheAlertsFindTheirMetrics(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^dashboard", "b^dashboard")
	s := startServer(t, db)
	mustUse(t, s, keys[0], keys[1])
	counted(t, s)
	body, _ := scrape(t, s.url+"/metrics", "")
	have, used := series(t, body), map[string]bool{}
	selectors := 0
	for _, query := range queries(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok || v.Name == "up" { // which Prometheus makes
				return nil
			}
			selectors++
			found := slices.ContainsFunc(have, func(l labels.Labels) bool {
				for _, m := range v.LabelMatchers {
					if m.Name != "instance" && m.Name != "job" && !m.Matches(l.Get(m.Name)) { // these two Prometheus adds
						return false
					}
				}
				return true
			})
			if used[v.Name] = true; !found {
				t.Errorf("%s: nothing matches %s", query, v)
			}
			return nil
		})
	}
	t.Logf("%d selectors of %d metrics", selectors, len(used))
}

// The page has a row for every metric of a scrape, with its type, and for no other.
func TestThePageHasEveryMetric(t *testing.T) {
	t.Parallel()
	s := startServer(t, tempDB(t))
	text, err := os.ReadFile("../http/docs/watching.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(relay_\\w+)` +\\| (\\w+) +\\| \\S").FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = m[2]
	}
	counted(t, s)
	shown := map[string]string{}
	body, format := scrape(t, s.url+"/metrics", "")
	for name, f := range families(t, body, format) {
		if strings.HasPrefix(name, "relay_") {
			shown[name] = strings.ToLower(f.GetType().String())
		}
	}
	if !maps.Equal(documented, shown) || len(shown) < 30 {
		t.Errorf("the page has %v\nthe relay %v", documented, shown)
	}
	t.Logf("%d metrics", len(shown))
}
