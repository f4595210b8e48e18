//go:build unix

package cmd_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user that no system has.
const nobody = 1234567

// asNobody makes a command of a user who owns nothing.
func asNobody(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	real, err := filepath.EvalSymlinks(binary)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for dir := folder; dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&1 == 0 && !strings.HasPrefix(dir, filepath.Dir(folder)) {
			t.Skipf("%s is closed to other users", dir)
		}
	}
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil { // testing closes it
		t.Fatal(err)
	}
	program := filepath.Join(folder, programName) // the folder of the binary may be closed to others
	if err := os.Link(real, program); err != nil {
		t.Skip("the program cannot be linked there: ", err)
	}
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	if schema, err := os.ReadFile(filepath.Join(filepath.Dir(binary), "schema.sql")); err == nil { // linkProgram's reads it there
		if err := os.WriteFile(filepath.Join(folder, "schema.sql"), schema, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return func(args ...string) *exec.Cmd {
		c := exec.Command(program, args...)
		c.Dir = folder
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return c
	}
}

// README tells users to run sudo -u relay relay …, and some will forget the sudo. The
// error names the file or the folder that is closed, whichever of them it is.
func TestAnotherUserIsToldWhichFileIsClosedAndWhoMayOpenIt(t *testing.T) {
	notShort(t)
	command := asNobody(t)
	db := tempDB(t)
	keys := issue(t, db, "a^denied")
	s := startProcess(t, db)
	s.send(keys[0], "a^denied", `{}`)
	for _, dir := range []string{filepath.Dir(db), filepath.Dir(filepath.Dir(db))} {
		info, err := os.Stat(dir)
		if err == nil && info.Mode().Perm()&1 == 0 { // not /dev/shm or /tmp, whose modes others need
			err = os.Chmod(dir, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const reads, writes = "message list", "key create b^denied"
	open := map[string]os.FileMode{}
	for _, c := range []struct {
		command, file string
		mode          os.FileMode // of that file; the files before it stay open
		says          string
	}{
		{reads, "", 0o600, "only the user root may read it (mode 0600); run this command as that user, as in sudo -u root relay …"},
		{writes, "", 0o600, "only the user root may read it (mode 0600)"},
		{writes, "", 0o640, "only the user root and the group root may read it (mode 0640)"},
		{writes, "", 0o644, "only the user root may write it (mode 0644)"},
		{"serve --addr 127.0.0.1:0", "", 0o644, "may write it (mode 0644)"},
		{reads, "-wal", 0o600, "only the user root may read " + db + "-wal (mode 0600)"},
		{reads, "-shm", 0o600, "only the user root may read " + db + "-shm (mode 0600)"},
		{writes, "-wal", 0o600, "only the user root may read " + db + "-wal (mode 0600)"},
	} {
		for _, ending := range []string{"", "-wal", "-shm"} {
			open[ending] = 0o666
		}
		open[c.file] = c.mode
		for ending, mode := range open {
			if err := os.Chmod(db+ending, mode); err != nil {
				t.Fatal(err)
			}
		}
		r := finish(t, command(append(strings.Fields(c.command), "--db", db)...), nil, "").wantCode(t, 1, db+": permission denied: ", c.says)
		if strings.Contains(r.err, "unable to open") {
			t.Errorf("%+v: %s", c, r.err)
		}
	}
	s.send(keys[0], "a^denied", `{}`) // the server continues
	if s.terminate() != 0 {
		t.Fatal("no clean end")
	}

	// Without a log, one must be made in the folder.
	if err := os.Chmod(db, 0o666); err != nil {
		t.Fatal(err)
	}
	finish(t, command("key", "create", "b^denied", "--db", db), nil, "").wantCode(t, 1, "may write "+filepath.Dir(db)+" (mode 0755)")
	finish(t, command("mecha", "list", "--db", db), nil, "").wantCode(t, 0) // a reader needs no log
	if err := os.Chmod(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	finish(t, command("mecha", "list", "--db", db), nil, "").wantCode(t, 1, "only the user root may enter "+filepath.Dir(db)+" (mode 0700)")
	wantWhole(t, db)
}

// A service has a user of its own, and people forget sudo -u. A database that root makes, or
// restores, is one that the service can open anyway.
func TestWhatRootMakesBelongsToTheOwnerOfThePlace(t *testing.T) {
	command := asNobody(t)
	folder := filepath.Join(t.TempDir(), "state")
	db, backup := filepath.Join(folder, "relay.db"), filepath.Join(t.TempDir(), "backup.db")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Chown(folder, nobody, nobody), os.Chmod(filepath.Dir(folder), 0o755), os.Chmod(filepath.Dir(filepath.Dir(folder)), 0o755)); err != nil {
		t.Fatal(err)
	}
	theirs := func(after string) {
		t.Helper()
		finish(t, command("key", "create", "b^root", "--db", db), nil, "").wantCode(t, 0)
		if info, err := os.Stat(db); err != nil || info.Sys().(*syscall.Stat_t).Uid != nobody || info.Sys().(*syscall.Stat_t).Gid != nobody {
			t.Errorf("after %s: %+v, %v", after, info, err)
		}
	}
	issue(t, db, "a^root")
	theirs("key create --create")
	mustRelay(t, "backup", backup, "--db", db)
	mustRelay(t, "restore", backup, "--db", db, "--force")
	theirs("restore --force")

	// Where there was no database, root keeps what it restores, and the user learns what to do.
	other := filepath.Join(folder, "other.db")
	mustRelay(t, "restore", backup, "--db", other)
	finish(t, command("key", "list", "--db", other), nil, "").wantCode(t, 1, fmt.Sprintf("sudo chown %d %s", nobody, other))
}
