package cmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCrashAReadOnlyFileSystemIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	dir := mountTmpfs(t, 16)
	db := filepath.Join(dir, "relay.db")
	a := issue(t, db, "a^ro")[0]
	s := startProcess(t, db, "--min-free-disk", "0")
	m := s.send(a, "a^ro", `{}`)
	for _, clean := range []bool{false, true} { // with a log that is not copied yet, and without
		if clean {
			s = startProcess(t, db, "--min-free-disk", "0")
			s.terminate()
		} else {
			s.kill()
		}
		mount(t, "-o", "remount,ro", dir)
		runRelay(t, "serve", "--addr", "127.0.0.1:0", "--db", db).wantCode(t, 1, db, "read-only file system")
		if r := runRelay(t, "key", "create", "b^ro", "--db", db); r.code != 1 || r.out != "" || !strings.Contains(r.err, db) {
			t.Errorf("key create: %+v", r)
		}
		mount(t, "-o", "remount,rw", dir)
	}
	s = startProcess(t, db, "--min-free-disk", "0")
	if h := s.history(a, ""); len(h) != 1 || h[0].MessageID != m.MessageID {
		t.Errorf("%+v", h)
	}
}

// A file system that finds itself damaged becomes read-only while programs use it.
func TestCrashTheFileSystemBecomesReadOnly(t *testing.T) {
	t.Parallel()
	dir, damage := mountExt4(t)
	db, l := filepath.Join(dir, "relay.db"), newLedger()
	keys := issue(t, db, "a^ro", "b^ro", "c^ro")
	s := startProcess(t, db, "--rate-limit", "0", "--min-free-disk", "0")
	wait := l.goOn(s, keys[:2], "c^ro", 500, nil)
	eventually(t, patience, "messages are accepted", func() bool { return l.count() > 50 })
	damage()
	s.wantExit(75, "the store has failed")
	wait()
	runRelay(t, "serve", "--addr", "127.0.0.1:0", "--db", db).wantCode(t, 1, db)
	// The file system shows all that the relay has written. Whether a repair keeps it
	// is the file system's own affair: an ext4 that shut down within an fsync has been
	// seen to confirm the fsync and to lose the data.
	copied := tempDB(t)
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(db + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantWhole(t, copied)
	s = startProcess(t, copied)
	l.compare(s, keys[2])
	t.Logf("%d messages accepted, %d without an outcome: none lost, doubled or out of order", l.count(), len(l.open))
}

// mountExt4 returns a directory with a real file system on a loop device, and what damages it.
func mountExt4(t *testing.T) (dir string, damage func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	tool(t, "mkfs.ext4", "mount", "umount", "findmnt")
	top := t.TempDir()
	dir, image := filepath.Join(top, "fs"), filepath.Join(top, "image")
	for _, err := range []error{os.Mkdir(dir, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v: %s", err, out)
	}
	mount(t, "-o", "loop,errors=remount-ro", image, dir)
	t.Cleanup(func() { unmount(t, dir) })
	source, err := exec.Command("findmnt", "-no", "SOURCE", dir).Output()
	if err != nil {
		t.Skipf("findmnt: %v", err)
	}
	trigger := fmt.Sprintf("/sys/fs/ext4/%s/trigger_fs_error", filepath.Base(strings.TrimSpace(string(source))))
	if _, err := os.Stat(trigger); err != nil {
		t.Skip("this kernel has no errors of ext4 on demand: ", err)
	}
	return dir, func() {
		if err := os.WriteFile(trigger, []byte("damaged by a test"), 0o200); err != nil {
			t.Fatal(err)
		}
	}
}
