package look_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/db/scratch"
)

// open opens a new store, which the end of the test closes.
func open(t testing.TB, options ...func(*db.Options)) *db.DB {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	o := db.Options{Path: filepath.Join(scratch.Dir(t), "relay.db"), Schema: string(schema), Create: true, ClockSkew: 5 * time.Minute}
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

// issue registers a Mecha and returns its key.
func issue(t testing.TB, d *db.DB, a relay.Address) *relay.Key {
	t.Helper()
	k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: a})
	if err != nil {
		t.Fatal(err)
	}
	return k.Key
}
