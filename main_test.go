package main

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The house (CONTRIBUTING.md): who may import whom, and which libraries each
// package must not know. Tests may import what they like.
var house = map[string]struct {
	ours   string // packages of ours, separated by spaces
	unseen string // libraries that it has no business with
}{
	".":   {"relay/cmd", "github.com golang.org modernc.org net database"},
	"cmd": {"relay/cmd/bench relay/db relay/http relay/http/client relay/ws relay/search", "modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/blevesearch"},
	// It measures a relay from outside, and knows nothing of its inside but how keys are made.
	"cmd/bench": {"relay/db relay/http/client", "modernc.org database/sql github.com golang.org"},
	"http":      {"relay/db", "modernc.org database/sql github.com/gobwas github.com/blevesearch github.com/spf13"},
	// It speaks to a relay from outside, and takes only the relay's words from db.
	"http/client": {"relay/db", "modernc.org database/sql github.com/spf13 github.com/blevesearch github.com/julienschmidt"},
	"ws":          {"relay/db", "modernc.org database/sql github.com/julienschmidt github.com/blevesearch github.com/spf13"},
	"search":      {"relay/db", "modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/spf13 net/http"},
	"db":          {"", "net/http github.com/julienschmidt github.com/gobwas github.com/blevesearch github.com/spf13"},
}

func TestThePackagesKeepTheirPlaces(t *testing.T) {
	seen := map[string]bool{}
	eachImport(t, func(file, imported string) {
		dir := path.Dir(file)
		seen[dir] = true
		rule, known := house[dir]
		if !known {
			t.Errorf("%s: the house has no room %s", file, dir)
			return
		}
		if ours(imported) && !within(imported, rule.ours) {
			t.Errorf("%s imports %s", file, imported)
		}
		if within(imported, rule.unseen) {
			t.Errorf("%s imports %s, which is not %s's business", file, imported, dir)
		}
	})
	for _, dir := range []string{".", "cmd", "db", "http", "http/client", "ws"} {
		if !seen[dir] {
			t.Errorf("no imports were found in %s", dir)
		}
	}
}

// What the relay's words and rules are must be readable without SQL, and
// without a library.
func TestOnlyFilesWithSQLKnowMoreThanTheStandardLibrary(t *testing.T) {
	eachImport(t, func(file, imported string) {
		name := strings.TrimSuffix(path.Base(file), ".go")
		if path.Dir(file) != "db" || strings.HasSuffix(name, "_sql") || strings.HasSuffix(name, "_unix") || strings.HasSuffix(name, "_windows") {
			return
		}
		if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") || within(imported, "database/sql") {
			t.Errorf("%s imports %s", file, imported)
		}
	})
}

// eachImport visits the imports of every source file that is not a test.
func eachImport(t *testing.T, f func(file, imported string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || len(name) > 1 && name[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone since the directory was read
		}
		if err != nil {
			return err
		}
		for _, i := range parsed.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			f(filepath.ToSlash(file), imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func ours(imported string) bool { return imported == "relay" || strings.HasPrefix(imported, "relay/") }

// within tells whether a path is one of a list, or below one.
func within(imported, list string) bool {
	for _, p := range strings.Fields(list) {
		if imported == p || strings.HasPrefix(imported, p+"/") {
			return true
		}
	}
	return false
}
