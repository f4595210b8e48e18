package main

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The house (CONTRIBUTING.md) is a straight stair: each package imports only those
// that stand below it here. ours names each package of ours that it may import,
// unseen the libraries that it has no business with. Tests may import what they
// like.
var house = []struct{ dir, ours, unseen string }{
	{".", "cmd", "github.com golang.org modernc.org net database"},
	{"cmd", "cmd/a2a/ring cmd/bench/ring cmd/clients cmd/cluster cmd/conformance/ring cmd/internal/cli cmd/internal/serve cmd/internal/show cmd/internal/system cmd/mcp cmd/setup/ring http http/client http/docs search db db/admin db/file db/inspect db/lock db/relay", "modernc.org database/sql github.com/julienschmidt github.com/blevesearch github.com/nats-io"},
	{"cmd/a2a/ring", "cmd/a2a cmd/internal/cli http/client db/relay", ringless},
	{"cmd/internal/serve", "cmd/cluster cmd/internal/cli cmd/internal/system cmd/mcp cmd/metrics http http/console http/console/operator ws search db db/inspect db/lock db/measure db/relay", "modernc.org database/sql github.com/julienschmidt github.com/blevesearch github.com/gobwas github.com/nats-io"},
	{"cmd/cluster", "cmd/internal/cli cmd/internal/show cmd/internal/system db db/admin db/cluster db/file", "modernc.org database/sql net github.com/julienschmidt github.com/blevesearch github.com/gobwas github.com/nats-io"},
	{"cmd/bench/ring", "cmd/bench cmd/internal/cli cmd/internal/show db/relay", ringless},
	{"cmd/clients", "cmd/clients/source cmd/internal/cli http/docs", ringless},
	{"cmd/conformance/ring", "cmd/conformance cmd/internal/cli cmd/internal/show db/relay", ringless},
	{"cmd/setup/ring", "cmd/internal/cli cmd/internal/show cmd/internal/system cmd/setup http/client db/lock db/relay", ringless},
	{"cmd/conformance", "cmd/child http/client db db/inspect db/relay http/docs", "modernc.org database/sql github.com/spf13 github.com/blevesearch github.com/julienschmidt"},
	{"cmd/bench", "cmd/child http/client db db/relay http/docs", "modernc.org database/sql github.com"},
	{"cmd/child", "", "modernc.org database/sql github.com net"},
	{"cmd/mcp", "http/client db/relay http/docs", "modernc.org database/sql github.com/spf13 github.com/gobwas github.com/blevesearch github.com/julienschmidt os"},
	{"cmd/a2a", "http/client db/relay db/strict http/docs", "modernc.org database/sql github.com golang.org os"},
	{"cmd/setup", "http/docs", "net database golang.org modernc.org github.com/spf13 github.com/gobwas github.com/blevesearch github.com/julienschmidt github.com/prometheus github.com/nats-io github.com/yuin github.com/modelcontextprotocol"},
	{"cmd/metrics", "http ws search db db/measure http/docs", "modernc.org database/sql github.com/spf13 github.com/gobwas github.com/blevesearch github.com/julienschmidt"},
	{"cmd/internal/cli", "cmd/internal/show cmd/internal/system http/client db db/file db/relay", "modernc.org database net/http github.com/julienschmidt github.com/gobwas github.com/blevesearch"},
	{"cmd/internal/show", "db/relay", "net database github.com golang.org modernc.org"},
	{"cmd/internal/system", "db db/file db/relay", "net database github.com modernc.org"},
	{"http/apitest", "http", "modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/blevesearch github.com/spf13 github.com/yuin"}, // imported by tests alone
	{"http", "http/docs db db/cache db/inspect db/measure db/relay db/turn", "modernc.org database/sql github.com/prometheus github.com/gobwas github.com/blevesearch github.com/spf13 github.com/yuin"},
	{"http/client/example", "http/client", "modernc.org database/sql github.com"},
	{"http/client", "db/lock db/relay", "modernc.org database/sql github.com/spf13 github.com/blevesearch github.com/julienschmidt"},
	{"cmd/clients/source", "", "net github.com golang.org modernc.org database"},
	// The console reads by an interface of its own, in the words of db/inspect and db/relay: it
	// cannot reach what writes. Its sockets, too, are handed to it.
	{"http/console/operator", "db db/relay", "modernc.org database/sql github.com golang.org"},
	{"http/console", "db/inspect db/relay http/docs", "modernc.org database/sql github.com golang.org"},
	{"ws", "db/measure db/relay", "modernc.org database/sql github.com/prometheus github.com/julienschmidt github.com/blevesearch github.com/spf13"},
	{"search", "db/measure db/relay db/turn", "github.com/prometheus modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/spf13 net/http"},
	{"db/cluster", "db db/file db/lock", "modernc.org database/sql net/http github.com/spf13 github.com/gobwas github.com/blevesearch"}, // with the build tag cluster
	{"db", "db/admin db/cache db/file db/inspect db/internal/late db/internal/readers db/internal/sqlite db/lock db/measure db/relay db/ring db/turn", "net github.com golang.org modernc.org database/sql"},
	{"db/admin", "db/relay", "net/http github.com golang.org modernc.org database"},
	{"db/file", "db/internal/sqlite db/lock db/relay db/ring db/strict", "net github.com golang.org modernc.org database/sql"},
	{"db/inspect", "db/relay", "net github.com golang.org modernc.org database"},
	{"db/internal/late", "db/internal/sqlite", "os net github.com golang.org modernc.org database"},
	{"db/internal/readers", "db/internal/sqlite db/measure db/relay db/turn", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/sqlite", "", "net/http github.com"},
	{"db/lock", "", "net github.com modernc.org database"},
	{"db/ring", "", "net github.com modernc.org database"},
	{"db/cache", "", "os net github.com golang.org modernc.org database"},
	{"db/turn", "db/measure", "os net github.com golang.org modernc.org database"},
	{"db/measure", "", "os net github.com golang.org modernc.org database"},
	{"db/relay", "db/strict", "os net/http github.com golang.org modernc.org database"},
	{"db/strict", "", "os net github.com golang.org modernc.org database"},
	{"db/scratch", "", "github.com golang.org modernc.org database"}, // imported by tests alone
	{"http/docs", "", "modernc.org database/sql net github.com/julienschmidt github.com/gobwas github.com/blevesearch github.com/spf13"},
	{"contrib/sbom", "", "net github.com golang.org modernc.org database"},
}

// ringless are the libraries of no ring's command.
const ringless = "modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/blevesearch"

func TestThePackagesKeepTheirPlaces(t *testing.T) {
	place := map[string]int{}
	for i, room := range house {
		place["relay/"+room.dir] = i
	}
	seen := map[string]bool{}
	eachImport(t, func(file, imported string) {
		dir := path.Dir(file)
		seen[dir] = true
		i, known := place["relay/"+dir]
		if !known {
			t.Errorf("%s: the house has no room %s", file, dir)
			return
		}
		if ours(imported) && (!slices.Contains(strings.Fields(house[i].ours), strings.TrimPrefix(imported, "relay/")) || place[imported] <= i) {
			t.Errorf("%s imports %s", file, imported)
		}
		if within(imported, house[i].unseen) {
			t.Errorf("%s imports %s, which is not %s's business", file, imported, dir)
		}
	})
	for _, room := range house {
		if !seen[room.dir] && !isTakenOff(room.dir) {
			t.Errorf("no imports were found in %s", room.dir)
		}
	}
}

// In db, SQL stands in the files whose names end in _sql.
func TestSQLStandsInItsFiles(t *testing.T) {
	statement := regexp.MustCompile("[\"`](SELECT|INSERT|UPDATE|DELETE|PRAGMA|CREATE|DROP) ")
	files, err := filepath.Glob("db/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		has, may := statement.Match(text), strings.HasSuffix(file, "_sql.go") || strings.HasSuffix(file, "_test.go")
		if has && !may {
			t.Errorf("%s has SQL: %s", file, statement.Find(text))
		}
	}
}

// Where locks belong to a process, closing any descriptor of a database drops the locks of SQLite on
// it. So the packages of the store open a database only by SQLite, and read its header by
// sqlite.ReadHeader. The files that open others say which.
func TestADatabaseIsOpenedBySQLiteAlone(t *testing.T) {
	others := map[string]string{
		"db/file/backup.go": "a log, and a copy that no connection has", "db/file/partial.go": "a copy that no connection has", "db/file/schema.go": "a file that was not there",
		"db/internal/sqlite/header.go": "ReadHeader", "db/internal/sqlite/os_unix.go": "a folder", "db/internal/sqlite/os_windows.go": "any, since locks belong to a handle on Windows",
		"db/internal/sqlite/holder_linux.go": "/proc", "db/internal/sqlite/mount_linux.go": "/proc",
	}
	opens := regexp.MustCompile(`os\.(Open|OpenFile|ReadFile|Create|WriteFile)\(`)
	for _, dir := range []string{"db", "db/admin", "db/file", "db/inspect", "db/internal/sqlite"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if name := filepath.ToSlash(file); others[name] == "" && !strings.HasSuffix(name, "_test.go") && opens.Match(text) {
				t.Errorf("%s opens a file by %s", name, opens.Find(text))
			}
		}
	}
}

// eachImport visits the imports of every source file that is not a test.
func eachImport(t *testing.T, f func(file, imported string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || len(name) > 1 && name[0] == '.' || file == "contrib/packages"): // a module of its own
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
