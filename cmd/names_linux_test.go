package cmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"relay/db/scratch"
)

// mounted returns a command that sees a file or folder under a second path as well. The
// command has a mount namespace of its own, so the mount ends with it.
func mounted(t *testing.T, from, at string, args []string) *exec.Cmd {
	t.Helper()
	tool(t, "unshare", "mount", "sh")
	if why := noMounts(); why != "" {
		t.Skip("mount namespaces are not permitted: ", why)
	}
	line := append([]string{"--mount", "sh", "-c", `mount --bind "$1" "$2" && shift 2 && exec "$@"`, "sh", from, at, binary}, args...)
	return exec.Command("unshare", line...)
}

// noMounts says why there are no mount namespaces; "" if there are.
var noMounts = sync.OnceValue(func() string {
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return ""
})

// A single file is mounted, as docker -v ./relay.db:/data/relay.db does. SQLite's log
// would then be on one side only.
func TestAFileThatIsAMountPointIsOpenedByNobody(t *testing.T) {
	notShort(t)
	t.Parallel()
	db, at := tempDB(t), tempDB(t)
	a := issue(t, db, "a^mount")[0]
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	touch(t, at)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(at, link); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{at, link} {
		for what, args := range openers(t, name, scratch.Long(t) && name == at) {
			r := finish(t, mounted(t, db, at, args), nil, "").wantCode(t, 1, name, "itself a mount point", "mount its folder instead")
			if r.out != "" {
				t.Errorf("%s: %+v", what, r)
			}
		}
		finish(t, mounted(t, db, at, []string{"restore", backup, "--db", name, "--force"}), nil, "").wantCode(t, 1, at, "itself a mount point")
	}
	if now, err := os.ReadFile(db); err != nil || !slices.Equal(now, before) {
		t.Errorf("the file was changed: %v", err)
	}
	wantFiles(t, filepath.Dir(at), "relay.db")
	finish(t, mounted(t, backup, at, []string{"mecha", "list", "--db", at}), nil, "").wantCode(t, 0) // a backup has no log

	// The mount of the folder is right: both sides see one log and one lock.
	s := startProcess(t, db)
	s.send(a, a.Address, `{}`)
	folder := t.TempDir()
	there := filepath.Join(folder, "relay.db")
	serve := finish(t, mounted(t, filepath.Dir(db), folder, []string{"serve", "--addr", "127.0.0.1:0", "--db", there}), nil, "")
	serve.wantCode(t, 1, "already being served")
	made := finish(t, mounted(t, filepath.Dir(db), folder, []string{"key", "create", "b^mount", "--json", "--db", there}), nil, "").wantCode(t, 0)
	b := agents(t, made.out)[0]
	s.ask(b, "GET", "/api/v1/whoami", "").want(t, 200)
	if list := finish(t, mounted(t, filepath.Dir(db), folder, []string{"mecha", "list", "--db", there}), nil, ""); !strings.Contains(list.out, "a^mount") || !strings.Contains(list.out, "b^mount") {
		t.Errorf("%+v", list)
	}
	if s.terminate() != 0 {
		t.Error("no clean end")
	}
	wantWhole(t, db)
}

// Where a process cannot see the second name, the lock of the file itself tells that another one serves it.
func TestAFileThatIsLockedUnderAnotherNameIsOpenedByNobody(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^lock")[0]
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	f, err := os.Open(db)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Skip("no file can be locked by its inode here: ", err)
	}
	for _, args := range openers(t, db, true) {
		runRelay(t, args...).wantCode(t, 1, db, "locked this file by another name")
	}
	runRelay(t, "restore", backup, "--db", db, "--force").wantCode(t, 1, db, "locked this file by another name")
	f.Close()

	// A server has that lock, and its own commands are let in.
	s := startProcess(t, db)
	if f, err = os.Open(db); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("the file of a server can be locked: %v", err)
	}
	wantWhole(t, db)
	s.send(a, a.Address, `{}`)
}
