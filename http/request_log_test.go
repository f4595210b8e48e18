package http_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

// At debug, each request is a line, including one that no endpoint sees. Long paths and methods are cut, and keys are left out.
func TestEveryRequestIsALineAtDebug(t *testing.T) {
	var log journal
	r := mustServe(t, func(s *settings) {
		s.api.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	alice := r.mustIssue("alice^demo")
	requests := []struct{ method, path, shownMethod, shownPath string }{
		{"GET", "/livez", "GET", "/livez"},
		{"GET", "/api/v1/messages/a%2fb?q=the-query", "GET", "/api/v1/messages/a/b"},
		{"GET", "/none", "GET", "/none"},
		{"POST", "/livez", "POST", "/livez"},
		{"GET", "/" + alice.Text + "%2F", "GET", "/mk_…/"},
		{alice.Text, "/livez", "mk_…", "/livez"},
		{strings.Repeat("X", 10_000), "/" + strings.Repeat("y", 5000), strings.Repeat("X", 200) + "…", "/" + strings.Repeat("y", 199) + "…"},
	}
	for _, q := range requests {
		r.anyone(q.method, q.path)
	}
	var lines []map[string]any
	for line := range strings.Lines(log.String()) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l["msg"] == "request" {
			lines = append(lines, l)
		}
	}
	if len(lines) != len(requests) {
		t.Fatalf("%d lines of %d requests:\n%s", len(lines), len(requests), log.String())
	}
	for i, q := range requests {
		if l := lines[i]; l["method"] != q.shownMethod || l["path"] != q.shownPath {
			t.Errorf("%.20s %.40s is the line %v", q.method, q.path, l)
		}
	}
	if strings.Contains(log.String(), alice.Text) || strings.Contains(log.String(), "the-query") {
		t.Errorf("a secret or a query is in the log:\n%s", log.String())
	}
}
