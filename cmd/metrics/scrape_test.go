package metrics_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"relay/cmd/metrics"
	"relay/db"
	"relay/db/relay"
	relayhttp "relay/http"
	"relay/http/apitest"
	"relay/search"
	"relay/ws"
)

// The answers of a whole relay are as /openapi.json says. The tests of package http have
// metrics of their own. The tests of cmd read what the metrics say.
func TestTheAnswersToScrapesAreDescribed(t *testing.T) {
	url := serve(t)
	for _, c := range []struct{ method, path, accept string }{
		{"GET", "/metrics", ""}, {"HEAD", "/metrics", ""}, {"GET", "/metrics?name[]=none", "text/plain"}, {"GET", "/metrics", "application/openmetrics-text; version=1.0.0"},
		{"GET", "/metrics", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}, {"GET", "/metrics", "image/png"},
	} {
		q, err := http.NewRequest(c.method, url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", c.accept)
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || len(body) < 1000 && c.method == "GET" {
			t.Errorf("%v: %d, %d bytes, %v", c, resp.StatusCode, len(body), err)
		}
	}
}

// serve runs a relay, each of whose answers is held against the documents, until the test
// ends. It returns its URL.
func serve(t *testing.T) string {
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	record := apitest.NewRecorder(t)
	d, err := db.Open(db.Options{Path: filepath.Join(t.TempDir(), "relay.db"), Schema: string(schema), Create: true, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	hub := ws.NewHub(ws.Config{Store: d})
	d.OnCommit(hub.Committed)
	d.OnKeys(hub.CheckKeys)
	index := search.Serve(d.Path()+".index", d, relay.DefaultHalfLife, slog.New(slog.DiscardHandler))
	api := relayhttp.New(relayhttp.Config{DB: d, Live: hub, Finder: index})
	meters := metrics.New(metrics.Sources{DB: d, Hub: hub, API: api, Index: index})
	api.ServeMetrics(meters.Handler())
	server := httptest.NewServer(record.Handler(api))
	t.Cleanup(func() {
		api.Drain()
		hub.Close(context.Background())
		server.Close()
		meters.Close()
		if err := index.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}
