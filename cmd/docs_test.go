package cmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each promise names the tests that show it; they exist.
func TestEveryPromiseIsShownByATest(t *testing.T) {
	page := mustRelay(t, "docs", "promises")
	tests := map[string]bool{}
	for _, pattern := range []string{"../*_test.go", "../*/*_test.go"} {
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
	named := regexp.MustCompile("`(Test\\w+)`")
	promises, _, found := strings.Cut(page, "## Where it does not hold")
	if !found {
		t.Error("the page does not say where it does not hold")
	}
	statements := strings.Split(promises, "\n- ")[1:]
	for _, s := range statements {
		if !named.MatchString(s) {
			t.Errorf("no test shows this: %s", s)
		}
	}
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		if !tests[m[1]] {
			t.Errorf("the page names %s, which does not exist", m[1])
		}
	}
	if len(statements) < 20 {
		t.Errorf("only %d statements were found", len(statements))
	}
}

func TestThePromisesCanBeReadInEveryWay(t *testing.T) {
	page := mustRelay(t, "docs")
	var v struct{ Page, Text string }
	if err := json.Unmarshal([]byte(mustRelay(t, "docs", "--json")), &v); err != nil || v.Page != "promises" || v.Text != page {
		t.Errorf("--json: %v, %+v", err, v)
	}
	runRelay(t, "docs", "nonsense").wantCode(t, 2, "nonsense", "promises")
	s := startServer(t, tempDB(t))
	ans, err := request{method: "GET", path: "/docs/promises"}.to(s.url)
	if err != nil || ans.status != 200 || string(ans.body) != page || ans.header.Get("Content-Type") != "text/markdown; charset=utf-8" {
		t.Errorf("/docs/promises: %v, %d %v", err, ans.status, ans.header)
	}
	ans, err = request{method: "GET", path: "/docs"}.to(s.url)
	if err != nil || !strings.Contains(string(ans.body), `href="/docs/promises"`) {
		t.Errorf("/docs does not lead to it: %v", err)
	}
}
