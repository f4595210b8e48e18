package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"relay/db/scratch"
)

// The example of the page "a2a" runs as it stands, at another port, and prints what the
// page shows, but for ids and times.
func TestTheExampleOfTheA2APage(t *testing.T) {
	need(t, "sh", "awk", "curl")
	asRelay(t)
	serve(t)
	file := pageFiles(t)["a2a"]
	script := strings.ReplaceAll(strings.Join(blocks(t, file, "sh"), ""), "127.0.0.1:8090", scratch.Addr(t))
	example := blocks(t, file, "json")
	t.Chdir(t.TempDir())
	got := run(t, "set -e\n"+script, "sh", "-s")
	seen := map[string]string{}
	got = regexp.MustCompile(`(msg|conv)_[0-9a-z]{26}`).ReplaceAllStringFunc(got, func(id string) string {
		kind, _, _ := strings.Cut(id, "_")
		if seen[id] == "" {
			seen[kind] += "x"
			seen[id] = fmt.Sprintf("%s_%d", kind, len(seen[kind]))
		}
		return seen[id]
	})
	got = regexp.MustCompile(`20\d\d-[-\dT:.]+Z`).ReplaceAllLiteralString(got, "TIME")
	for _, shown := range example {
		before, rest, found := strings.Cut(got, shown)
		if !found {
			t.Fatalf("the page shows\n%s\nand this is printed:\n%s", shown, got)
		}
		got = before + rest
	}
}
