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
		if policy := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; img-src 'self'; style-src 'sha256-") {
			t.Errorf("%s: Content-Security-Policy %q", path, policy)
		}
		text := r.anyone("GET", path+".md")
		if text.status != 200 || text.header.Get("Content-Type") != "text/markdown; charset=utf-8" || string(text.body) != p.Text {
			t.Errorf("%s.md: %d %v", path, text.status, text.header)
		}
	}
	r.anyone("POST", "/docs/errors").wantProblem(405, relay.MethodNotAllowed)
}

// A browser gets a page that leads on where there is none; a program gets a problem
// document, as everywhere.
func TestAPathWithoutAPage(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	anyone := mecha{r: r}
	noKey := all(with("X-Mecha-Key"), with("X-Nonce"), with("X-Request-Timestamp"), unsigned)
	browser := "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
	for _, path := range []string{"/docs/nothing", "/docs/nothing.md", "/docs/errors.html", "/docs/", "/docs/style.css", "/nothing", "/favicon.ico"} {
		for _, accept := range []string{browser, "application/xml, Text/HTML;q=0.5"} {
			a := anyone.do("GET", path, "", noKey, with("Accept", accept))
			if a.status != 404 || a.header.Get("Content-Type") != "text/html; charset=utf-8" || a.header.Get("Content-Security-Policy") == "" ||
				!strings.Contains(string(a.body), "<h1>There is no such page</h1>") || !strings.Contains(string(a.body), `<a href="/docs/protocol">`) {
				t.Errorf("%s for %s: %d %v %s", path, accept, a.status, a.header, a.body)
			}
		}
		if a := anyone.do("HEAD", path, "", noKey, with("Accept", browser)); a.status != 404 || len(a.body) > 0 {
			t.Errorf("HEAD %s: %d, %d bytes", path, a.status, len(a.body))
		}
		r.anyone("GET", path).wantProblem(404, relay.NotFound)
		for _, accept := range []string{"*/*", "application/json", "text/html;q=0, */*", "text/html;q=x", "text/markdown", "text/*;q=0.1", ",;="} {
			anyone.do("GET", path, "", noKey, with("Accept", accept)).wantProblem(404, relay.NotFound)
		}
	}
	anyone.do("POST", "/nothing", "{}", noKey, with("Accept", browser)).wantProblem(404, relay.NotFound)
	anyone.do("GET", "/api/v1/nothing", "", noKey, with("Accept", browser)).wantProblem(404, relay.NotFound)
}
