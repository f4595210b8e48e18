package cmd_test

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"testing"

	"relay/db/dbtest"
	"relay/db/look"
	"relay/db/relay"
)

// audit reads the audit log of a file.
func audit(t *testing.T, db string) []relay.NotedAct {
	t.Helper()
	in, err := look.Inspect(db)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	all, err := dbtest.Acts(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantWhats wants these acts, in their order.
func wantWhats(t *testing.T, acts []relay.NotedAct, want ...string) {
	t.Helper()
	var got []string
	for _, a := range acts {
		got = append(got, a.By.Command+": "+a.What)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the acts are\n%q, want\n%q", got, want)
	}
}

// The audit log says who did what by which command, next to a server and without one,
// and nobody gets rid of an act by restoring a backup from before it.
func TestTheAuditLogOutlivesARestore(t *testing.T) {
	t.Parallel()
	dir, db := t.TempDir(), tempDB(t)
	keys := issue(t, db, "a^audit", "b^audit")
	s := startServer(t, db)
	backup := filepath.Join(dir, "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	mustRelay(t, "key", "rotate", keys[0].KeyID, "--db", db)
	mustRelay(t, "key", "revoke", keys[1].KeyID, "--db", db)
	runRelay(t, "key", "revoke", "key_nobodys000000000", "--db", db).wantCode(t, 1)
	mustRelay(t, "mecha", "remove", "b^audit", "--db", db)
	mustRelay(t, "mecha", "profile", "set", "a^audit", text(t, "profile.json", `{}`), "--db", db)
	s.end()
	before := []string{"key create: key_issued", "key create: key_issued"}
	since := []string{"key rotate: key_rotated", "key revoke: key_revoked", "mecha remove: mecha_removed", "mecha profile set: profile_set"}
	acts := audit(t, db)
	wantWhats(t, acts, slices.Concat(before, since)...)
	if a := acts[3]; string(a.Key) != keys[1].KeyID || a.Mecha != "b^audit" || a.At.IsZero() {
		t.Errorf("%+v", a)
	}
	if me, err := user.Current(); err == nil && (acts[0].By.User != me.Username || acts[0].By.UID != int64(os.Getuid())) {
		t.Errorf("%+v by %+v", acts[0], me)
	}
	mustRelay(t, "restore", backup, "--db", db, "--force")
	wantWhats(t, audit(t, db), slices.Concat(before, since, []string{"restore: restored"})...)
	mustRelay(t, "restore", backup, "--db", db, "--force") // a second one doubles nothing
	wantWhats(t, audit(t, db), slices.Concat(before, since, []string{"restore: restored", "restore: restored"})...)
	wantWhole(t, db)
	startServer(t, db).end()
}
