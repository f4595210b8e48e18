package cmd_test

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// act is a line of relay audit --json.
type act struct {
	At, User, Command, What, Detail string
	UID                             *int
	MechaID                         string `json:"mecha_id"`
	KeyID                           string `json:"key_id"`
}

func audit(t *testing.T, db string, args ...string) (all []act) {
	t.Helper()
	for line := range strings.Lines(mustRelay(t, append([]string{"audit", "--json", "--db", db}, args...)...)) {
		all = append(all, parse[act](t, []byte(line)))
	}
	return all
}

// wantWhats wants these acts, in their order.
func wantWhats(t *testing.T, acts []act, want ...string) {
	t.Helper()
	var got []string
	for _, a := range acts {
		got = append(got, a.Command+": "+a.What)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the acts are\n%q, want\n%q", got, want)
	}
}

// The audit log tells who did what by which command, beside a server and without one,
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
	mustRelay(t, "compact", "--db", db)
	s.end()
	before := []string{"key create: key_issued", "key create: key_issued"}
	since := []string{"key rotate: key_rotated", "key revoke: key_revoked", "mecha remove: mecha_removed", "mecha profile set: profile_set", "compact: compacted"}
	acts := audit(t, db)
	wantWhats(t, acts, slices.Concat(before, since)...)
	if a := acts[3]; a.KeyID != keys[1].KeyID || a.MechaID != "b^audit" || a.At == "" {
		t.Errorf("%+v", a)
	}
	if me, err := user.Current(); err == nil && (acts[0].User != me.Username || acts[0].UID == nil && os.Getuid() >= 0 || acts[0].UID != nil && *acts[0].UID != os.Getuid()) {
		t.Errorf("%+v by %+v", acts[0], me)
	}
	mustRelay(t, "restore", backup, "--db", db, "--force")
	wantWhats(t, audit(t, db), slices.Concat(before, since, []string{"restore: restored"})...)
	mustRelay(t, "restore", backup, "--db", db, "--force") // a second one doubles nothing
	wantWhats(t, audit(t, db), slices.Concat(before, since, []string{"restore: restored", "restore: restored"})...)
	wantWhole(t, db)
	startServer(t, db).end()
	if n := len(audit(t, db, "--since", "2100-01-01")); n != 0 {
		t.Errorf("%d acts of the future", n)
	}
	runRelay(t, "audit", "--since", "soon", "--db", db).wantCode(t, 2, "--since")
	if out := mustRelay(t, "audit", "--db", db); !strings.Contains(out, "key_revoked") || !strings.HasPrefix(out, "AT ") {
		t.Errorf("%s", out)
	}
}
