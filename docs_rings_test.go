package main

import (
	"html"
	"os"
	"regexp"
	"strings"
	"testing"

	"relay/http/docs"
)

// ringFolders are the folders of the rings whose marks the Markdown files may have.
var ringFolders = map[string]string{
	"a2a": "cmd/a2a", "acme": "cmd/acme", "agent": "cmd/agent", "bench": "cmd/bench", "check": "cmd/check db/file/check",
	"clients": "cmd/clients", "cluster": "cmd/cluster db/cluster db/replication",
	"compact": "cmd/compact db/file/compact", "conformance": "cmd/conformance",
	"console": "http/console cmd/console db/look/survey", "demo": "cmd/demo", "dev": "cmd/dev", "documents": "http/documents",
	"imports": "cmd/imports", "inspect": "cmd/inspect", "learning": "cmd/learning db/learning search/learned",
	"man": "cmd/man", "mcp": "cmd/mcp",
	"metrics": "cmd/metrics", "series": "cmd/series db/file/series", "setup": "cmd/setup",
}

// isTakenOff reports whether a folder belongs to a ring that is gone, or to a library of rings that are
// all gone.
func isTakenOff(t *testing.T, dir string) bool {
	if len(rings(t)) == 0 && within(dir, libraries(t)) {
		return true
	}
	for ring, folders := range ringFolders {
		if within(dir, folders) && !docs.Has(ring) {
			return true
		}
	}
	return false
}

// A ring that has its folder is registered. A mark names a ring, and a block that is marked ends
// with the same ring.
func TestTheMarksOfRings(t *testing.T) {
	for ring, folders := range ringFolders {
		folder := strings.Fields(folders)[0]
		if _, err := os.Stat(folder); (err == nil) != docs.Has(ring) {
			t.Errorf("the ring %s is registered: %v; its folder %s: %v", ring, docs.Has(ring), folder, err)
		}
	}
	marks := 0
	for _, file := range markdownFiles(t) {
		for _, m := range regexp.MustCompile(`(?m)^<!-- ([a-z0-9]+): (.+) -->$`).FindAllStringSubmatch(raw(t, file), -1) {
			if marks++; ringFolders[m[1]] == "" || !strings.Contains(raw(t, file), "\n"+m[2]) {
				t.Errorf("%s: there is no ring %s, or no line begins with %q", file, m[1], m[2])
			}
		}
		open := ""
		for line := range strings.Lines(raw(t, file)) {
			m := regexp.MustCompile(`^(.*)<!-- (/?)([a-z0-9]+) -->$`).FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if m == nil {
				continue
			}
			marks++
			switch alone, ends, ring := m[1] == "", m[2] != "", m[3]; {
			case ringFolders[ring] == "":
				t.Errorf("%s: there is no ring %s", file, ring)
			case alone && !ends && open == "":
				open = ring
			case alone && ends && open == ring:
				open = ""
			case alone || ends || strings.TrimSpace(m[1]) == "":
				t.Errorf("%s: the mark %s stands between those of %q", file, strings.TrimSpace(line), open)
			}
		}
		if open != "" {
			t.Errorf("%s: the block of %s has no end", file, open)
		}
	}
	if marks < 20 {
		t.Errorf("only %d marks were found", marks)
	}
}

func TestEveryFileIsAPage(t *testing.T) {
	files := pageFiles(t)
	for _, p := range docs.Pages() {
		if files[p.Name] == "" || p.Title == "" || strings.HasPrefix(p.Title, "#") || p.About == "" {
			t.Errorf("%s: file %q, title %q, about %q", p.Name, files[p.Name], p.Title, p.About)
		}
		delete(files, p.Name)
		paragraphs := strings.SplitN(p.Text, "\n\n", 3)
		if len(paragraphs) < 3 || !strings.HasPrefix(p.Text, "# ") || strings.HasPrefix(paragraphs[1], "#") {
			t.Errorf("%s does not begin with a title and a paragraph on its purpose", p.Name)
		}
		if strings.Contains(p.Text, "<!--") || strings.Contains(p.Text, "\n\n\n") {
			t.Errorf("%s: a comment, or a hole where one was", p.Name)
		}
	}
	for _, file := range files {
		t.Errorf("%s is in no list of pages", file)
	}
}

var (
	anchor    = regexp.MustCompile(` id="([^"]*)"`)
	reference = regexp.MustCompile(` (?:href|src)="([^"]*)"`)
)

// Every link of every page that a server shows leads to a page and a section that are there, and
// nothing is fetched from elsewhere.
func TestNoLinkOfTheSiteIsDead(t *testing.T) {
	site := docs.HTML()
	all := map[string]string{"/docs": string(site.Index)}
	for name, page := range site.Pages {
		all["/docs/"+name] = string(page)
		all["/docs/"+name+".md"] = string(site.Texts[name+".md"])
	}
	anchors := map[string]map[string]bool{}
	for path, page := range all {
		anchors[path] = map[string]bool{"": true}
		for _, m := range anchor.FindAllStringSubmatch(page, -1) {
			if anchors[path][m[1]] {
				t.Errorf("%s: the anchor %q stands there twice", path, m[1])
			}
			anchors[path][m[1]] = true
		}
	}
	links := 0
	for name := range site.Pictures {
		anchors["/docs/"+name] = map[string]bool{"": true}
	}
	for path, page := range all {
		if strings.HasSuffix(path, ".md") {
			continue
		}
		for _, m := range reference.FindAllStringSubmatch(page, -1) {
			to, fragment, _ := strings.Cut(html.UnescapeString(m[1]), "#")
			if to == "" {
				to = path
			}
			if links++; !anchors[to][fragment] {
				t.Errorf("%s: the link %s leads nowhere", path, m[1])
			}
		}
	}
	if links < 300 {
		t.Errorf("only %d links were found", links)
	}
}
