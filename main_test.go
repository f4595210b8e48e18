package main

import (
	"regexp"
	"strings"
	"testing"
)

// A row of the house: ours names each package of ours that a package may import, unseen the
// libraries that are not its business. Tests may import what they like.
type row struct{ dir, ours, unseen string }

// The house (CONTRIBUTING.md) is a straight stair: each package imports only those that stand
// below it here. The rows of a ring are in its folder, in house.txt.
var house = []row{
	{".", "cmd", "github.com golang.org modernc.org net database"},
	{"cmd", "cmd/internal/about cmd/internal/cli cmd/internal/operate cmd/internal/serve cmd/internal/show cmd/internal/system", "modernc.org database/sql github.com/julienschmidt github.com/blevesearch github.com/nats-io"},
	{"cmd/relaytest", "cmd/internal/cli cmd/internal/serve db db/scratch", "modernc.org database/sql github.com net"}, // imported by tests alone
	{"cmd/internal/operate", "cmd/internal/cli cmd/internal/show cmd/internal/system db db/file db/look db/relay search",
		"modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/nats-io"},
	{"cmd/internal/about", "cmd/internal/cli db/relay http http/docs",
		"modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/nats-io"},
	{"cmd/internal/serve", "cmd/internal/cli cmd/internal/system http ws search db db/lock db/relay", "modernc.org database/sql github.com/julienschmidt github.com/blevesearch github.com/gobwas github.com/nats-io"},
	{"cmd/internal/remote", "cmd/internal/cli http/client db/relay", "modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/blevesearch"},
	{"cmd/internal/cli", "cmd/internal/show cmd/internal/system db db/file db/look db/relay", "modernc.org database net/http github.com/julienschmidt github.com/gobwas github.com/blevesearch"},
	{"cmd/internal/display", "cmd/internal/show db/relay", "net database github.com modernc.org"},
	{"cmd/internal/show", "db/relay", "net database github.com golang.org modernc.org"},
	{"cmd/internal/system", "db db/file db/relay", "net database github.com modernc.org"},
	{"cmd/child", "", "modernc.org database/sql github.com net"},
	{"http/apitest", "db/scratch", "modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/blevesearch github.com/spf13 github.com/yuin"}, // imported by tests alone
	{"http", "http/docs db db/cache db/look db/measure db/relay db/turn", "modernc.org database/sql github.com/prometheus github.com/gobwas github.com/blevesearch github.com/spf13 github.com/yuin"},
	{"http/client/example", "http/client", "modernc.org database/sql github.com"},
	{"http/client", "db/lock db/relay", "modernc.org database/sql github.com/spf13 github.com/blevesearch github.com/julienschmidt"},
	{"ws", "db/measure db/relay", "modernc.org database/sql github.com/prometheus github.com/julienschmidt github.com/blevesearch github.com/spf13"},
	{"search", "db/measure db/relay db/turn", "github.com/prometheus modernc.org database/sql github.com/julienschmidt github.com/gobwas github.com/spf13 net/http"},
	{"db/dbtest", "db db/file db/internal/engine db/internal/messages db/relay db/scratch", "net github.com golang.org modernc.org database"}, // imported by tests alone
	{"db", "db/admin db/file db/internal/answers db/internal/dictionary db/internal/directory db/internal/engine db/internal/lessons db/internal/mailbox db/internal/messages db/internal/names db/internal/platform db/internal/progress db/internal/readers db/internal/replays db/internal/retention db/internal/sending db/internal/sqlite db/lock db/look db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/look/backlog", "db/internal/engine db/internal/mailbox db/internal/names db/internal/platform db/internal/sqlite db/look db/relay", "net github.com golang.org modernc.org database"},
	{"db/look/browse", "db/file db/internal/engine db/internal/mailbox db/internal/messages db/internal/sqlite db/lock db/look db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/look", "db/file db/internal/directory db/internal/engine db/internal/mailbox db/internal/messages db/internal/names db/internal/progress db/internal/readers db/internal/retention db/internal/sqlite db/relay db/turn", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/lessons", "db/internal/answers db/internal/dictionary db/internal/directory db/internal/engine db/internal/progress db/internal/retention db/internal/sending db/relay", "net github.com golang.org modernc.org database"},
	{"db/internal/retention", "db/file db/internal/answers db/internal/dictionary db/internal/directory db/internal/engine db/internal/mailbox db/internal/names db/internal/progress db/internal/replays db/internal/sending db/internal/sqlite db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/sending", "db/cache db/internal/dictionary db/internal/directory db/internal/engine db/internal/mailbox db/internal/messages db/internal/names db/internal/progress db/internal/sqlite db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/progress", "db/cache db/internal/dictionary db/internal/directory db/internal/engine db/internal/mailbox db/internal/messages db/internal/readers db/internal/sqlite db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/messages", "db/internal/engine db/internal/mailbox db/internal/readers db/internal/sqlite db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/directory", "db/cache db/internal/dictionary db/internal/engine db/internal/mailbox db/internal/names db/internal/replays db/internal/sqlite db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/answers", "db/internal/engine db/internal/sqlite db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/replays", "db/internal/engine db/internal/readers db/internal/sqlite db/relay db/ring", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/mailbox", "db/internal/engine db/internal/late db/internal/names db/internal/sqlite db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/dictionary", "db/cache db/internal/engine db/internal/names db/internal/sqlite db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/engine", "db/file db/internal/names db/internal/platform db/internal/readers db/internal/sqlite db/measure db/relay db/turn", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/names", "db/cache db/internal/late db/internal/sqlite db/relay", "net github.com golang.org modernc.org database/sql"},
	{"db/admin", "db/file db/lock db/relay", "net/http github.com golang.org modernc.org database"},
	{"db/file", "db/internal/platform db/internal/sqlite db/lock db/relay db/ring db/strict", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/late", "db/internal/sqlite", "os net github.com golang.org modernc.org database"},
	{"db/internal/readers", "db/internal/sqlite db/measure db/relay db/turn", "net github.com golang.org modernc.org database/sql"},
	{"db/internal/platform", "", "net github.com modernc.org database"},
	{"db/internal/sqlite", "", "net/http github.com"},
	{"db/lock", "", "net github.com modernc.org database"},
	{"db/ring", "", "net github.com modernc.org database"},
	{"db/cache", "", "os net github.com golang.org modernc.org database"},
	{"db/turn", "db/measure", "os net github.com golang.org modernc.org database"},
	{"db/measure", "", "os net github.com golang.org modernc.org database"},
	{"db/relay", "db/strict", "os net/http github.com golang.org modernc.org database"},
	{"db/strict", "", "os net github.com golang.org modernc.org database"},
	{"db/scratch/wire", "db/scratch", "github.com golang.org modernc.org database"}, // imported by tests alone
	{"db/scratch", "", "github.com golang.org modernc.org database"},                // imported by tests alone
	{"http/docs", "", "modernc.org database/sql net github.com/julienschmidt github.com/gobwas github.com/blevesearch github.com/spf13"},
	{"contrib/sbom", "", "net github.com golang.org modernc.org database"},
}

// In db and its rooms, SQL is in the files whose names end in _sql.
func TestSQLStandsInItsFiles(t *testing.T) {
	statement := regexp.MustCompile("[\"`](SELECT|INSERT|UPDATE|DELETE|PRAGMA|CREATE|DROP) ")
	for _, s := range sources(t) {
		room := within(s.dir, "db/internal db/learning") && s.dir != "db/internal/sqlite"
		if (s.dir == "db" || room) && !strings.HasSuffix(s.file, "_sql.go") && statement.Match(s.text) {
			t.Errorf("%s has SQL: %s", s.file, statement.Find(s.text))
		}
	}
}

// Where locks belong to a process, closing any descriptor of a database drops the locks of SQLite on
// it. So the packages of the store open a database only by SQLite, and read its header by
// sqlite.ReadHeader. The files that open others say which.
func TestADatabaseIsOpenedBySQLiteAlone(t *testing.T) {
	others := map[string]string{
		"db/file/backup.go": "a log, and a copy that no connection has", "db/file/partial.go": "a copy that no connection has", "db/file/schema.go": "a file that was not there",
		"db/internal/sqlite/header.go": "ReadHeader", "db/internal/platform/os_unix.go": "a folder", "db/internal/platform/os_windows.go": "any, since locks belong to a handle on Windows",
		"db/internal/platform/holder_linux.go": "/proc", "db/internal/platform/mount_linux.go": "/proc",
	}
	opens := regexp.MustCompile(`os\.(Open|OpenFile|ReadFile|Create|WriteFile)\(`)
	for _, s := range sources(t) {
		store := within(s.dir, "db") && !within(s.dir, "db/cluster db/dbtest db/lock db/ring db/scratch")
		if store && others[s.file] == "" && opens.Match(s.text) {
			t.Errorf("%s opens a file by %s", s.file, opens.Find(s.text))
		}
	}
}
