package cmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"relay/http/docs"
)

// Each promise names the tests that show it, in a comment of the page's file; they exist. Those of
// a ring, behind its name, are there with it.
func TestEveryPromiseIsShownByATest(t *testing.T) {
	source, err := os.ReadFile("../http/docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(source), "\r\n", "\n")
	page = regexp.MustCompile(`\n  <!-- (\w+): Test[\w ]+ -->`).ReplaceAllStringFunc(page, func(tests string) string {
		ring, names, _ := strings.Cut(strings.TrimPrefix(tests, "\n  <!-- "), ": ")
		if docs.Has(ring) {
			return "\n  <!-- " + names
		}
		return ""
	})
	tests := map[string]bool{}
	for _, pattern := range []string{"../*_test.go", "../*/*_test.go", "../*/*/*_test.go", "../*/*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllSubmatch(text, -1) {
				tests[string(m[1])] = true
			}
		}
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w+`)
	promises, _, found := strings.Cut(page, "## Exceptions")
	if !found {
		t.Error("the page has no exceptions")
	}
	statements := strings.Split(promises, "\n- ")[1:]
	for _, s := range statements {
		if !regexp.MustCompile(`\n  <!-- Test[\w ]+ -->`).MatchString(s) {
			t.Errorf("no test shows this: %s", s)
		}
	}
	for _, name := range named.FindAllString(page, -1) {
		if !tests[name] {
			t.Errorf("the page names %s, which does not exist", name)
		}
	}
	if len(statements) < 20 {
		t.Errorf("only %d statements were found", len(statements))
	}
	if text := mustRelay(t, "docs", "promises"); named.MatchString(text) {
		t.Errorf("users are shown the name of a test: %s", named.FindString(text))
	}
}

func TestTheDocsCanBeReadInEveryWay(t *testing.T) {
	notShort(t)
	t.Parallel()
	list, lines := mustRelay(t, "docs"), strings.Split(mustRelay(t, "docs", "--json"), "\n")
	s := startServer(t, tempDB(t))
	for i, p := range docs.Pages() {
		if !regexp.MustCompile(`(?m)^` + p.Name + ` +` + regexp.QuoteMeta(p.About) + `$`).MatchString(list) {
			t.Errorf("relay docs does not list %s: %s", p.Name, list)
		}
		var v struct{ Page, Title, About, Text string }
		if err := json.Unmarshal([]byte(lines[i]), &v); err != nil || v.Page != p.Name || v.Title != p.Title || v.About != p.About {
			t.Errorf("docs --json: %v, %+v", err, v)
		}
		text := mustRelay(t, "docs", p.Name)
		if err := json.Unmarshal([]byte(mustRelay(t, "docs", p.Name, "--json")), &v); err != nil || v.Page != p.Name || v.Text != text || text != p.Text {
			t.Errorf("docs %s --json: %v, %+v", p.Name, err, v)
		}
		ans, err := request{method: "GET", path: "/docs/" + p.Name + ".md"}.to(s.url)
		if err != nil || ans.status != 200 || string(ans.body) != text {
			t.Errorf("/docs/%s.md: %v, %d %v", p.Name, err, ans.status, ans.header)
		}
	}
	refused := runRelay(t, "docs", "nonsense").wantCode(t, 2, "nonsense")
	for _, p := range docs.Pages() {
		if !strings.Contains(refused.err, p.Name) {
			t.Errorf("an unknown page is refused without naming %s: %s", p.Name, refused.err)
		}
	}
	if got := mustRelay(t, "__complete", "docs", ""); !strings.HasPrefix(got, "signing\t") || strings.Count(got, "\n") != len(docs.Pages())+1 {
		t.Errorf("completion gives %s", got)
	}
}
