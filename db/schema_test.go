package db_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"relay/db"
)

const current = 1 // the schema that this program knows

// byHand opens a file with SQLite alone.
func byHand(t testing.TB, path string) *sql.DB {
	t.Helper()
	d, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// makeByHand runs statements on a file with SQLite alone, and returns its bytes.
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

func TestAFileOfTheFutureIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "future.db")
	before := makeByHand(t, path, "CREATE TABLE wonder (x)", "PRAGMA application_id = 0x52454c59", "PRAGMA user_version = 77")
	wantRefused(t, path, before, "newer relay", "schema 77", fmt.Sprint("knows ", current))
}

// The schemas from before the first release had numbers that later ones have again.
func TestAFileFromBeforeTheFirstReleaseIsRefused(t *testing.T) {
	for _, version := range []int{1, 2, 10} {
		path := filepath.Join(t.TempDir(), "early.db")
		before := makeByHand(t, path, "CREATE TABLE message (x)", "PRAGMA application_id = 0x524c4159", fmt.Sprint("PRAGMA user_version = ", version))
		wantRefused(t, path, before, "before the first release", "begin with a new database")
	}
}

func TestAForeignFileIsRefusedAndLeftAlone(t *testing.T) {
	for name, statements := range map[string][]string{
		"another program's":             {"CREATE TABLE place (url TEXT)", "INSERT INTO place VALUES ('https://example.org')"},
		"another program's, in WAL":     {"PRAGMA journal_mode = WAL", "CREATE TABLE place (url TEXT)"},
		"with another application_id":   {"PRAGMA application_id = 252006674", "PRAGMA user_version = 1"},
		"empty, but with a version":     {"PRAGMA user_version = 1"},
		"ours by its id, but version 0": {"PRAGMA application_id = 0x52454c59", "CREATE TABLE place (url TEXT)"},
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

// wantRefused opens a file in every way. Each must be refused and change nothing.
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
