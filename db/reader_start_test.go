package db_test

import (
	"testing"
	"time"

	"relay/db"
)

// Litestream reads the database at all times. A server that starts beside it does not wait
// for it.
func TestAStartDoesNotWaitForAReader(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice := s.mustIssue("alice^demo")
	reader := byHand(t, s.Path())
	state, err := reader.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer state.Rollback()
	var messages int
	if err := state.QueryRow("SELECT count(*) FROM message").Scan(&messages); err != nil || messages != 0 {
		t.Fatal(messages, err)
	}
	s.mustSend(alice.Key, "alice^demo", `{}`)
	path := s.Path()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s = mustOpen(t, func(o *db.Options) { o.Path, o.Create = path, false })
	if took := time.Since(began); took > 9*time.Second { // SQLite waits 10 s for a lock
		t.Errorf("the start took %v", took)
	}
	s.mustSend(alice.Key, "alice^demo", `{}`)
}

// The tables that Litestream makes are no faults, and others with such names are.
func TestTheTablesOfLitestreamAreNoFaults(t *testing.T) {
	t.Parallel()
	path := mustFill(t)
	makeByHand(t, path, "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)", "CREATE TABLE _litestream_lock (id INTEGER)")
	if names, said, _ := found(t, path); len(names) > 0 {
		t.Error(said)
	}
	makeByHand(t, path, "CREATE TABLE _litestream_other (id INTEGER)")
	if names, said, _ := found(t, path); len(names) != 1 || names[0] != "schema" {
		t.Errorf("%v\n%s", names, said)
	}
}
