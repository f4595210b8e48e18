package db_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"relay/db"
)

const (
	current = 5 // the schema that this program knows
)

// byHand opens a file with SQLite alone.
func byHand(t *testing.T, path string) *sql.DB {
	t.Helper()
	d, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// makeByHand makes a file with SQLite alone, and gives its bytes.
func makeByHand(t *testing.T, path string, statements ...string) []byte {
	t.Helper()
	d := byHand(t, path)
	for _, s := range statements {
		if _, err := d.Exec(s); err != nil {
			t.Fatalf("%v in %s", err, s)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return content(t, path)
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	comment = regexp.MustCompile(`--[^\n]*`)
	around  = regexp.MustCompile(` ?([(),]) ?`)
)

// schemaOf reads what a file consists of, apart from comments and line breaks,
// with its user_version.
func schemaOf(t *testing.T, path string) (lines []string, version int) {
	t.Helper()
	d := byHand(t, path)
	defer d.Close()
	rows, err := d.Query("SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY type, name")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, around.ReplaceAllString(strings.Join(strings.Fields(comment.ReplaceAllString(s, "")), " "), "$1"))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if err := d.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return lines, version
}

func TestTheOldestFileIsBroughtUpToDate(t *testing.T) {
	dir := t.TempDir()
	oldest, fresh := filepath.Join(dir, "oldest.db"), filepath.Join(dir, "fresh.db")
	makeByHand(t, oldest,
		string(content(t, "testdata/schema-v1.sql")),
		"INSERT INTO setting (name, value) VALUES ('secret', x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'), ('keys_version', 0)",
		"INSERT INTO mecha (id, address, created_at) VALUES (1, 'old^timer', 1760000000000)",
		"PRAGMA application_id = 0x524c4159", "PRAGMA user_version = 1")
	for _, path := range []string{oldest, fresh} {
		d := mustOpen(t, func(o *db.Options) { o.Path, o.Create = path, path == fresh })
		k := d.mustIssue("old^timer")
		d.mustSend(k.Key, "old^timer", `{}`)
		if path == oldest && k.Mecha.CreatedAt.UnixMilli() != 1760000000000 {
			t.Errorf("what stood in it is lost: %+v", k.Mecha)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	have, version := schemaOf(t, oldest)
	want, _ := schemaOf(t, fresh)
	if !slices.Equal(have, want) || version != current {
		t.Errorf("user_version %d; the oldest file now has\n%s\na fresh one has\n%s", version, strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// A command of a newer relay must not change the file under an older one that serves it.
func TestAnOlderFileThatIsServedIsLeftAlone(t *testing.T) {
	s := mustOpen(t)
	s.mustIssue("alice^x")
	d := byHand(t, s.Path())
	if _, err := d.Exec(fmt.Sprint("PRAGMA user_version = ", current-1)); err != nil {
		t.Fatal(err)
	}
	d.Close()
	_, err := db.Open(db.Options{Path: s.Path(), Schema: schema(t)})
	if err == nil || !strings.Contains(err.Error(), "older relay") {
		t.Errorf("%v", err)
	}
	if _, version := schemaOf(t, s.Path()); version != current-1 {
		t.Errorf("it is of version %d now", version)
	}
}

func TestAFileOfTheFutureIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "future.db")
	before := makeByHand(t, path, "CREATE TABLE wonder (x)", "PRAGMA application_id = 0x524c4159", "PRAGMA user_version = 77")
	wantRefused(t, path, before, "newer relay", "schema 77", fmt.Sprint("knows ", current))
}

func TestAForeignFileIsRefusedAndLeftAlone(t *testing.T) {
	for name, statements := range map[string][]string{
		"another program's":             {"CREATE TABLE place (url TEXT)", "INSERT INTO place VALUES ('https://example.org')"},
		"another program's, in WAL":     {"PRAGMA journal_mode = WAL", "CREATE TABLE place (url TEXT)"},
		"with another application_id":   {"PRAGMA application_id = 252006674", "PRAGMA user_version = 1"},
		"empty, but with a version":     {"PRAGMA user_version = 1"},
		"ours by its id, but version 0": {"PRAGMA application_id = 0x524c4159", "CREATE TABLE place (url TEXT)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "places.db")
			wantRefused(t, path, makeByHand(t, path, statements...), "not relay's")
		})
	}
	path := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, bytes.Repeat([]byte("No database at all.\n"), 500), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, path, content(t, path), "not a database")
}

// wantRefused opens a file in every way and expects nothing to change.
func wantRefused(t *testing.T, path string, before []byte, says ...string) {
	t.Helper()
	for _, o := range []db.Options{{}, {Create: true}, {Create: true, Serve: true}} {
		o.Path, o.Schema = path, schema(t)
		d, err := db.Open(o)
		if err == nil {
			d.Close()
			t.Fatal("it was opened")
		}
		for _, text := range append(says, path) {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("the error lacks %q: %v", text, err)
			}
		}
		if now := content(t, path); !bytes.Equal(now, before) {
			t.Errorf("Create %v, Serve %v: the file was changed: %s", o.Create, o.Serve, differences(before, now))
			if err := os.WriteFile(path, before, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if o.Serve {
			continue // the lock stays
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(entries) != 1 {
			t.Errorf("beside it now: %v, %v", entries, err)
		}
	}
}

// differences names the bytes of SQLite's header that differ.
func differences(a, b []byte) string {
	var at []string
	for i := range min(len(a), len(b), 100) {
		if a[i] != b[i] {
			at = append(at, fmt.Sprintf("%d: %02x→%02x", i, a[i], b[i]))
		}
	}
	return fmt.Sprintf("%d bytes, now %d; %s", len(a), len(b), strings.Join(at, ", "))
}
