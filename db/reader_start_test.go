package db_test

import (
	"testing"
	"time"

	"relay/db"
)

// Litestream reads the database at all times. A server that starts meanwhile does not wait
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
	for range 4 { // a busy machine is not that slow each time
		began := time.Now()
		s = mustOpen(t, func(o *db.Options) { o.Path, o.Create = path, false })
		if time.Since(began) < 9*time.Second { // SQLite would wait 10 s for a lock, at every start
			s.mustSend(alice.Key, "alice^demo", `{}`)
			return
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("each start took more than 9 s")
}
