package db

import (
	"testing"
	"time"

	"relay/db/internal/retention"
	"relay/db/relay"
)

// The last use of a key is not stored after the key was removed: a client may try with an
// ended key until then, and later.
func TestTheUseOfARemovedKeyIsNotStored(t *testing.T) {
	d, c := openSetClock(t)
	issued, err := d.Issue(&relay.IssueKey{At: c.now(), Address: "a^b"})
	if err != nil {
		t.Fatal(err)
	}
	mustIssue(t, d, "last^b") // the row with the greatest number stays
	if _, err := d.Key(t.Context(), issued.Text); err != nil {
		t.Fatal(err)
	}
	if err := d.Revoke(&relay.RevokeKey{At: c.now(), ID: issued.ID}); err != nil {
		t.Fatal(err)
	}
	path := d.w.Path
	if err := d.Close(); err != nil { // stores the use
		t.Fatal(err)
	}
	c.pass(retention.ExpiredKeyStays + time.Hour)
	d = openHere(t, c.tells, func(o *Options) { o.Path = path })
	if _, err := d.Key(t.Context(), issued.Text); relay.ErrorCode(err) != relay.KeyRevoked {
		t.Fatal(err)
	}
	if _, err := d.Apply(&relay.PruneUnused{At: c.now(), EmptySince: c.now(), Limit: 10}); err != nil {
		t.Fatal(err)
	}
	if n := scalar(t, d, "SELECT count(*) FROM mecha_key"); n != 1 {
		t.Fatalf("%d keys are left", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, said, r := checked(t, path); r.Faults > 0 {
		t.Error(said)
	}
}
