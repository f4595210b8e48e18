package docs_test

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"relay/http/docs"
)

func TestEveryFileIsAPage(t *testing.T) {
	listed := map[string]bool{}
	for _, p := range docs.Pages() {
		listed[p.Name+".md"] = true
		if p.Title == "" || strings.HasPrefix(p.Title, "#") || p.About == "" {
			t.Errorf("%s: title %q, about %q", p.Name, p.Title, p.About)
		}
		paragraphs := strings.SplitN(p.Text, "\n\n", 3)
		if len(paragraphs) < 3 || !strings.HasPrefix(p.Text, "# ") || strings.HasPrefix(paragraphs[1], "#") {
			t.Errorf("%s does not begin with a title and a paragraph on its purpose", p.Name)
		}
	}
	files, err := filepath.Glob("*.md")
	if err != nil || len(files) != len(listed) {
		t.Errorf("%d files, %d pages: %v", len(files), len(listed), err)
	}
	for _, f := range files {
		if !listed[f] {
			t.Errorf("%s is in no list of pages", f)
		}
	}
}

// Notes from maintainer to maintainer are not part of a page.
func TestCommentsAreLeftOut(t *testing.T) {
	found := 0
	for _, p := range docs.Pages() {
		source, err := os.ReadFile(p.Name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		found += strings.Count(string(source), "<!--")
		if strings.Contains(p.Text, "<!--") || strings.Contains(p.Text, "\n\n\n") {
			t.Errorf("%s: a comment, or a hole where one was", p.Name)
		}
		if page := string(docs.HTML().Pages[p.Name]); strings.Contains(page, "<!--") {
			t.Errorf("%s: HTML was left out of the page, or a comment was left in", p.Name)
		}
	}
	if found < 20 {
		t.Errorf("only %d comments were found", found)
	}
}

var (
	anchor    = regexp.MustCompile(` id="([^"]*)"`)
	reference = regexp.MustCompile(` (?:href|src)="([^"]*)"`)
)

// Every link of every page leads to a page and a section that are there, and
// nothing is fetched from elsewhere.
func TestNoLinkIsDead(t *testing.T) {
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

// The policy lets the browser use the style that the pages have, and nothing else.
func TestThePolicyAllowsTheStyle(t *testing.T) {
	site := docs.HTML()
	for name, page := range site.Pages {
		_, rest, _ := strings.Cut(string(page), "<style>")
		style, _, _ := strings.Cut(rest, "</style>")
		sum := sha256.Sum256([]byte(style))
		if !strings.Contains(site.Policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("%s: its style is not the one of the policy", name)
		}
		for _, word := range []string{"<script", " style=", " onclick", "http-equiv", "<link"} {
			if strings.Contains(string(page), word) {
				t.Errorf("%s has %s, which the policy refuses", name, word)
			}
		}
	}
}

func TestEveryCodeOfTheErrorsPageIsOnTheIndex(t *testing.T) {
	index := string(docs.HTML().Index)
	sections := regexp.MustCompile(`<h3 id="(\w+)">`).FindAllStringSubmatch(string(docs.HTML().Pages["errors"]), -1)
	for _, m := range sections {
		if !strings.Contains(index, `<section class="code" id="`+m[1]+`">`) {
			t.Errorf("/docs#%s leads nowhere", m[1])
		}
	}
	if len(sections) < 40 {
		t.Errorf("only %d codes were found", len(sections))
	}
	if strings.Contains(index, "&lt;name&gt;`") || !strings.Contains(index, "<code>&lt;name&gt;^&lt;crew&gt;</code>") {
		t.Error("the meaning of a code is not rendered")
	}
}
