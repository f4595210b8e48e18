// Package dbtest is for tests of what reads a store: it makes stores, and shows SQLite's plans of
// queries.
package dbtest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/relay"
	"relay/db/scratch"
)

// Open opens a new store, which the end of the test closes.
func Open(t testing.TB, options ...func(*db.Options)) *db.DB {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	schema, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "..", "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	o := db.Options{Path: filepath.Join(scratch.Dir(t), "relay.db"), Schema: string(schema), Create: true,
		ClockSkew: 5 * time.Minute}
	for _, f := range options {
		f(&o)
	}
	d, err := db.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Issue registers a Mecha and returns its key.
func Issue(t testing.TB, d *db.DB, a relay.Address) *relay.Key {
	t.Helper()
	k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: a})
	if err != nil {
		t.Fatal(err)
	}
	return k.Key
}

// Plan returns SQLite's plan of a query, a line for each step.
func Plan(t testing.TB, v engine.Viewer, text string, args ...any) string {
	t.Helper()
	var plan strings.Builder
	err := v.Point(t.Context(), func(x *engine.Rx) error {
		text, err := messages.WithFailed(x, text)
		if err != nil {
			return err
		}
		r := x.C.Query("EXPLAIN QUERY PLAN "+text, args...)
		for r.Next() {
			plan.WriteString(r.Text(3) + "\n")
		}
		return r.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
