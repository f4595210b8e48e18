package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A user who may not open the database is told whose it is.
func TestNoPermissionOnTheDatabase(t *testing.T) {
	notOnWindows(t, "access is by lists there")
	db := tempDB(t)
	issue(t, db, "a^denied")
	program, whose := []string{binary}, " is yours, but its mode 0000 forbids to "
	mode := os.FileMode(0)
	if os.Geteuid() == 0 { // root may read everything, but for this
		program = []string{tool(t, "setpriv"), "--bounding-set", "-dac_override,-dac_read_search", binary}
		mode, whose = 0o600, "only user 1234567 may "
		if err := os.Chown(db, 1234567, -1); err != nil {
			t.Skip(err)
		}
	}
	if err := os.Chmod(db, mode); err != nil {
		t.Fatal(err)
	}
	refused := func(args string) {
		t.Helper()
		all := append(append([]string{}, program...), strings.Fields(args)...)
		r := finish(t, exec.Command(all[0], append(all[1:], "--db", db)...), nil, "").wantCode(t, 1, db+": permission denied: ", whose)
		if strings.Contains(r.err, "unable to open") {
			t.Errorf("%s: %s", args, r.err)
		}
	}
	for _, args := range []string{"key list", "mecha list", "message list", "stats", "check", "compact",
		"backup " + db + ".copy", "serve --addr 127.0.0.1:0"} {
		refused(args)
	}
	finish(t, exec.Command(program[0], append(program[1:], "restore", db, "--db", tempDB(t))...), nil, "").wantCode(t, 1, db+": permission denied: ", whose)

	dir := filepath.Dir(db)
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 1234567, -1); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	whose = dir + " "
	refused("key list")
	refused("message list")
}
