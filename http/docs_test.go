package http_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"relay/db/relay"
	"relay/http"
	"relay/http/docs"
)

var update = flag.Bool("update", false, "write the sections of docs/errors.md anew")

// The page explains every code, in the words of the one list, by status.
func TestTheErrorsPage(t *testing.T) {
	const file = "docs/errors.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n## Status ")
	want := strings.TrimSuffix(head, "\n") + "\n"
	codes := slices.Clone(relay.Codes)
	slices.SortStableFunc(codes, func(a, b relay.CodeInfo) int { return http.Status(a.Code) - http.Status(b.Code) })
	for i, c := range codes {
		if i == 0 || http.Status(c.Code) != http.Status(codes[i-1].Code) {
			want += fmt.Sprintf("\n## Status %d\n", http.Status(c.Code))
		}
		want += fmt.Sprintf("\n### %s\n\n%s\n", c.Code, c.Meaning)
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != strings.ReplaceAll(string(text), "\r\n", "\n") {
		t.Errorf("%s is not what relay.Codes says; write it anew: go test ./http -run TestTheErrorsPage -update", file)
	}
}

// A person who opens the server's address finds the documentation, and every
// page of it, also as Markdown.
func TestTheDocsAreServed(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	for _, path := range []string{"/", "/docs", "/docs/promises", "/docs/errors.md"} {
		if a := r.anyone("HEAD", path); a.status >= 400 || len(a.body) > 0 {
			t.Errorf("HEAD %s: %d, %d bytes", path, a.status, len(a.body))
		}
	}
	index := r.anyone("GET", "/docs")
	if a := r.anyone("GET", "/"); a.status != 200 || string(a.body) != string(index.body) { // the client follows
		t.Errorf("/ does not lead to /docs: %d %v", a.status, a.header)
	}
	for _, p := range docs.Pages() {
		path := "/docs/" + p.Name
		if !strings.Contains(string(index.body), `<a href="`+path+`">`) {
			t.Errorf("/docs does not lead to %s", path)
		}
		page := r.anyone("GET", path)
		if page.status != 200 || page.header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(string(page.body), "<title>"+p.Title) {
			t.Errorf("%s: %d %v", path, page.status, page.header)
		}
		if policy := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") {
			t.Errorf("%s: Content-Security-Policy %q", path, policy)
		}
		text := r.anyone("GET", path+".md")
		if text.status != 200 || text.header.Get("Content-Type") != "text/markdown; charset=utf-8" || string(text.body) != p.Text {
			t.Errorf("%s.md: %d %v", path, text.status, text.header)
		}
	}
	for _, path := range []string{"/docs/nothing", "/docs/nothing.md", "/docs/errors.html", "/docs/", "/docs/style.css"} {
		r.anyone("GET", path).wantProblem(404, relay.NotFound)
	}
	r.anyone("POST", "/docs/errors").wantProblem(405, relay.MethodNotAllowed)
}
