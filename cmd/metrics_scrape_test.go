package cmd_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/http/apitest"
)

// The answers to scrapes are as /openapi.json says.
func TestTheAnswersToScrapesAreDescribed(t *testing.T) {
	t.Parallel()
	s := startServer(t, tempDB(t))
	for _, c := range []struct{ method, path, accept string }{
		{"GET", "/metrics", ""}, {"HEAD", "/metrics", ""}, {"GET", "/metrics?name[]=none", "text/plain"}, {"GET", "/metrics", "application/openmetrics-text; version=1.0.0"},
		{"GET", "/metrics", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}, {"GET", "/metrics", "image/png"},
	} {
		q, err := http.NewRequest(c.method, s.url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", c.accept)
		resp, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || len(body) < 1000 && c.method == "GET" {
			t.Errorf("%v: %d, %d bytes, %v", c, resp.StatusCode, len(body), err)
		}
		for _, fault := range apitest.Check(&apitest.Exchange{Method: c.method, URL: q.URL, Request: q.Header, Status: resp.StatusCode, Header: resp.Header, Body: body}) {
			t.Errorf("%v: %s", c, fault)
		}
	}
}

// Programs that ask, and do not take their answers, keep no other from a scrape.
func TestSlowScrapersHoldUpNobody(t *testing.T) {
	t.Parallel()
	s := startServer(t, tempDB(t), "--metrics-addr", "127.0.0.1:0")
	addr := s.await(s.stderr, `serving metrics" addr=(\S+)`)[1]
	asked := []byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 25_000)) // more than a server that answers nobody takes
	var all sync.WaitGroup
	for range 5 { // more than are rendered at once
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetReadBuffer(2048); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for err == nil { // until its answers fill all buffers
				c.SetWriteDeadline(time.Now().Add(time.Second))
				_, err = c.Write(asked)
			}
		})
	}
	all.Wait()
	for range 5 {
		scrape(t, "http://"+addr+"/metrics", "")
	}
}

// A number that cannot be read from the database is left out: an old one, or a zero, would
// let an alert end.
func TestNumbersThatCannotBeReadAreLeftOut(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	s := startServer(t, db)
	metrics, ofFile := s.url+"/metrics", []string{"relay_search_index_lag_seconds", "relay_messages_pending", "relay_messages_pending_oldest_seconds"}
	for _, name := range ofFile {
		eventually(t, patience, name+" is shown", func() bool { return shows(t, metrics, name) })
	}
	file := byHand(t, db)
	defer file.Close()
	file.SetMaxOpenConns(1)
	if _, err := file.Exec("PRAGMA busy_timeout = 60000; ALTER TABLE mecha RENAME TO lost; ALTER TABLE received RENAME TO lost_too"); err != nil {
		t.Fatal(err)
	}
	for _, name := range ofFile {
		eventually(t, patience, name+" is left out", func() bool { return !shows(t, metrics, name) })
	}
	if !shows(t, metrics, "relay_sockets") {
		t.Error("the others are left out, too")
	}
}

// shows reports whether a scrape has a metric.
func shows(t *testing.T, url, name string) bool {
	t.Helper()
	body, format := scrape(t, url, "")
	return families(t, body, format)[name] != nil
}
