package cmd_test

import (
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"relay/db/relay"
)

// act is a line of relay audit --json.
type act struct {
	At, Command, What, Detail string
	User                      *string
	UID                       *int64
	MechaID                   *string `json:"mecha_id"`
	KeyID                     *string `json:"key_id"`
}

// relay audit prints the whole audit log, or with --since its entries from a time on.
func TestRelayAudit(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	k := issue(t, db, "a^audit", "b^audit")
	s := startServer(t, db)
	mustRelay(t, "key", "revoke", k[1].KeyID, "--db", db)
	s.end()
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	mustRelay(t, "restore", backup, "--db", db, "--force")
	want, got := audit(t, db), lines[act](t, mustRelay(t, "audit", "--json", "--db", db))
	if len(want) != 4 || len(got) != len(want) {
		t.Fatalf("%d acts are printed, want %d: %+v", len(got), len(want), got)
	}
	value := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	for i, w := range want {
		g := got[i]
		if g.At != relay.FormatTime(w.At) || g.Command != w.By.Command || g.What != w.What || g.Detail != w.Detail || value(g.User) != w.By.User ||
			g.UID == nil && w.By.UID != relay.NoUID || g.UID != nil && *g.UID != w.By.UID || value(g.MechaID) != string(w.Mecha) || value(g.KeyID) != string(w.Key) {
			t.Errorf("act %d is printed as %+v, want %+v", i, g, w)
		}
	}
	if last := got[3]; last.MechaID != nil || last.KeyID != nil || last.Command != "restore" {
		t.Errorf("%+v", last)
	}
	if out := mustRelay(t, "audit", "--json", "--db", db, "--since", "2100-01-01"); out != "" {
		t.Errorf("acts of the future: %s", out)
	}
	if n := strings.Count(mustRelay(t, "audit", "--json", "--db", db, "--since", relay.FormatTime(want[2].At)), "\n"); n < 2 || n > 4 {
		t.Errorf("%d acts since the third", n)
	}
	runRelay(t, "audit", "--since", "soon", "--db", db).wantCode(t, 2, "--since")
	out := mustRelay(t, "audit", "--db", db)
	if !strings.Contains(out, "key_revoked") || !strings.HasPrefix(out, "AT ") {
		t.Errorf("%s", out)
	}
	if me, err := user.Current(); err == nil && want[0].By.UID != relay.NoUID && !strings.Contains(out, me.Username+" ("+strconv.FormatInt(want[0].By.UID, 10)+")") {
		t.Errorf("nobody is named:\n%s", out)
	}
}

// A mistyped word gets the suggestion that was probably meant.
func TestSlipsInCommandsThatLookGetASuggestion(t *testing.T) {
	t.Parallel()
	wantSuggestion(t, "message lst", `there is no command "message lst"; did you mean "message list"?`)
	wantSuggestion(t, "mess", `there is no command "mess"; did you mean "message"?`)
}
