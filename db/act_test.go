package db_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/dbtest"
	"relay/db/look"
	"relay/db/relay"
)

// maria is an operator.
var maria = relay.Actor{UID: 1000, User: "maria", Command: "key create"}

// wantActs reads the audit log, and wants each act as "what mecha key detail"; parts of it
// are enough.
func (s store) wantActs(want ...string) {
	s.t.Helper()
	in, err := look.Inspect(s.Path())
	if err != nil {
		s.t.Fatal(err)
	}
	defer in.Close()
	acts, err := dbtest.Acts(ctx, in)
	if err != nil || len(acts) != len(want) {
		s.t.Fatalf("%d acts, %v; want %d: %+v", len(acts), err, len(want), acts)
	}
	for i, n := range acts {
		text := fmt.Sprintf("%s %s %s %s", n.What, n.Mecha, n.Key, n.Detail)
		for part := range strings.SplitSeq(want[i], "|") {
			if !strings.Contains(text, part) {
				s.t.Errorf("act %d is %q, want %q", i, text, part)
			}
		}
		if n.By != maria || time.Since(n.At).Abs() > time.Hour {
			s.t.Errorf("act %d: %+v", i, n)
		}
	}
}

// An operator's act is noted in its own transaction. A refused act is not noted, and no
// act of a Mecha is.
func TestTheAuditLogHasTheActsOfOperators(t *testing.T) {
	s := mustOpen(t, func(o *db.Options) { o.By = maria })
	a := s.mustIssue("a^crew")
	if _, err := s.Issue(&relay.IssueKey{At: time.Now(), Address: "b^crew", Label: "a\nforged line"}); err == nil {
		t.Fatal("a label with a line break was taken")
	}
	b, err := s.Issue(&relay.IssueKey{At: time.Now(), Address: "b^crew", Label: "laptop", WithSecret: true, ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	next, err := s.Issue(&relay.IssueKey{At: time.Now(), Replaces: a.ID, Overlap: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Revoke(&relay.RevokeKey{At: time.Now(), ID: b.ID}); err != nil {
		t.Fatal(err)
	}
	if err := s.Revoke(&relay.RevokeKey{At: time.Now(), ID: "key_nobodys"}); relay.ErrorCode(err) != relay.UnknownKey {
		t.Fatal(err)
	}
	profile := relay.Profile{Description: "new"}
	for _, key := range []relay.KeyNumber{0, a.Number} { // a command, and the Mecha itself
		if err := s.PutProfile(&relay.PutProfile{At: time.Now(), Key: key, Address: "a^crew", Profile: profile.Stored()}); err != nil {
			t.Fatal(err)
		}
	}
	s.mustSend(a.Key, "a^crew", `{}`)
	if err := s.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: "b^crew"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Note(relay.ActCompacted, "2 MiB before"); err != nil {
		t.Fatal(err)
	}
	s.wantActs("key_issued a^crew "+string(a.ID)+" no label", "key_issued b^crew "+string(b.ID)+"|“laptop”, ends ",
		"key_rotated a^crew "+string(next.ID)+" replaces "+string(a.ID)+", which ends after 1m0s", "key_revoked b^crew "+string(b.ID),
		"profile_set a^crew", "mecha_removed b^crew", "compacted   2 MiB before")
	for _, secret := range []string{a.Text, b.Text, b.Secret, next.Text} {
		if n := s.countRows("SELECT count(*) FROM audit WHERE instr(detail || user || command, ?) > 0", secret); n != 0 {
			t.Error("a secret is in the audit log")
		}
	}
}

// Without an operator nothing is noted, and every write works as before.
func TestWithoutAnOperatorNothingIsNoted(t *testing.T) {
	s := mustOpen(t)
	s.mustIssue("a^crew")
	if err := s.Note(relay.ActCompacted, ""); err != nil {
		t.Fatal(err)
	}
	s.wantActs()
}

// The audit log has an end, however long a script runs.
func TestTheAuditLogKeepsTheNewest(t *testing.T) {
	s := mustOpen(t, func(o *db.Options) { o.By = maria })
	s.mustIssue("a^crew")
	s.mustIssue("b^crew")
	file, err := sql.Open("sqlite", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Exec("INSERT INTO audit SELECT 100001, at, uid, user, command, what, mecha, key, detail FROM audit WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	s.mustIssue("c^crew")
	s.wantActs("a^crew", "c^crew") // of which the first is a copy: 1 and 2 are gone
}

// countRows counts by SQLite alone.
func (s store) countRows(query string, args ...any) (n int) {
	s.t.Helper()
	file, err := sql.Open("sqlite", s.Path())
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	if err := file.QueryRow(query, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}
