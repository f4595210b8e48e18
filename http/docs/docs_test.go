package docs_test

import (
	"crypto/sha256"
	"encoding/base64"
	"os"
	"regexp"
	"strings"
	"testing"

	"relay/http/docs"
)

// The texts on a ring that is taken off are left out: a row of a table, and a section.
func TestWhatIsAboutARingGoesWithIt(t *testing.T) {
	const text = "# Title\n\n| a | b |\n|---|---|\n| here | 1 | <!-- here -->\n| gone | 2 | <!-- gone -->\n\n" +
		"<!-- gone -->\n## Gone\n\nlost <!-- here -->\n\n<!-- /gone -->\n## Kept\n<!-- TestOf gone -->\n\n<!-- here -->\n## Here\n\n<!-- /here -->\nend\n"
	const want = "# Title\n\n| a | b |\n|---|---|\n| here | 1 |\n\n## Kept\n<!-- TestOf gone -->\n\n## Here\n\nend\n"
	if got := docs.Present(text, func(ring string) bool { return ring == "here" }); got != want {
		t.Errorf("%q, not %q", got, want)
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
