//go:build unix

package cmd_test

import (
	"os"
	"path/filepath"
	"testing"
)

// The page deploying has keys issued by sudo -u relay: the log says who called sudo then,
// too. The name of the user is the system's, and not what the environment says.
func TestTheAuditLogNamesTheCallerOfSudo(t *testing.T) {
	t.Parallel()
	command := asNobody(t)
	c := command("key", "create", "a^sudo", "--create", "--db", "relay.db")
	if err := os.Chown(c.Dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	finish(t, c, []string{"USER=root", "HOME=/", "SUDO_USER=carol\x1b[2J"}, "").wantCode(t, 0)
	acts := audit(t, filepath.Join(c.Dir, "relay.db"))
	if len(acts) != 1 || acts[0].By.UID != nobody || acts[0].By.User != `by sudo of carol\u001b[2J` {
		t.Errorf("%+v", acts)
	}
}
