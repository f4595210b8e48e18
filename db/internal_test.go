package db

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// openHere opens a store for tests that look inside.
func openHere(t testing.TB, options ...func(*Options)) *DB {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Path: filepath.Join(t.TempDir(), "relay.db"), Schema: string(schema), Create: true, ClockSkew: 5 * time.Minute}
	for _, f := range options {
		f(&o)
	}
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// What a fresh file is cannot be changed later without rewriting all of it.
func TestAFreshFile(t *testing.T) {
	d := openHere(t)
	for pragma, want := range map[string]string{"page_size": "8192", "auto_vacuum": "2", "journal_mode": "wal", "synchronous": "2"} {
		c, err := openConn(d.path, writing)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.row(func(r *rows) {
			if got := fmt.Sprint(r.dest[0]); got != want {
				t.Errorf("%s is %s, want %s", pragma, got, want)
			}
		}, "PRAGMA "+pragma)
		if err != nil {
			t.Error(err)
		}
		c.close()
	}
}
