package sqlite

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that has a database open reads its header again and again, by any of its names, without closing a
// descriptor of it: where locks belong to a process, that would drop SQLite's. This test has such a lock,
// which Linux drops by the same rule, and sees it stay. After the last connection, no descriptor is left.
func TestReadingTheHeaderDropsNoLock(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "relay.db"), filepath.Join(dir, "link.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	header := make([]byte, 20)
	if err := ReadHeader(path, header); err != io.EOF {
		t.Errorf("an empty file: %v", err)
	}
	if n := descriptors(t, path); n != 0 {
		t.Errorf("%d descriptors are left of a file without connections", n)
	}
	var conns []*Conn
	open := func(path string, r Role) {
		c, err := Open(path, r)
		if err == nil {
			conns = append(conns, c)
			_, err = c.Row(nil, "SELECT 1 FROM sqlite_schema")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	open(path, Creating)
	if err := conns[0].Script("CREATE TABLE t (a)"); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 1 << 40, Len: 1} // where SQLite has none
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link, path} {
		if err := ReadHeader(name, header); err != nil || !bytes.HasPrefix(header, []byte("SQLite format 3\x00")) {
			t.Errorf("%s: %q, %v", name, header, err)
		}
		open(name, Watching)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil { // asks as another process would
		t.Fatal(err)
	}
	if lock.Type != unix.F_WRLCK {
		t.Error("the lock of this process is gone: a descriptor of the file was closed")
	}
	if n := descriptors(t, path); n != len(conns)+2 { // f, and one for the header
		t.Errorf("%d descriptors of the file are open beside %d connections", n, len(conns))
	}
	f.Close()
	for _, c := range conns {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := descriptors(t, path); n != 0 {
		t.Errorf("%d descriptors are left after the last connection", n)
	}
}

// descriptors counts the open descriptors of this process for a file.
func descriptors(t *testing.T, path string) (n int) {
	t.Helper()
	const dir = "/proc/self/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range list {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.TrimSuffix(to, " (deleted)") == path {
			n++
		}
	}
	return n
}
