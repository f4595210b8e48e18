package db

import (
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
