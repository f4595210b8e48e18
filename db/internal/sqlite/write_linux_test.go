package sqlite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// A file that may not grow is a full disk to us, and a fault to SQLite: countNoRoom stands
// between. The process of this test has the limit, so it is one of its own.
func TestAFileThatMayNotGrowIsAFullDisk(t *testing.T) {
	const child = "RELAY_SQLITE_TEST_CHILD"
	if os.Getenv(child) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestAFileThatMayNotGrowIsAFullDisk$", "-test.v")
		c.Env = append(os.Environ(), child+"="+t.TempDir())
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	write := func(name string) error {
		path := filepath.Join(os.Getenv(child), name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Open(path, Creating)
		if err == nil {
			err = c.Script("CREATE TABLE a (b)")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		limit := unix.Rlimit{Cur: 64 << 10, Max: unix.RLIM_INFINITY}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		err = c.Exec("INSERT INTO a VALUES (?)", make([]byte, 1<<20))
		limit.Cur = unix.RLIM_INFINITY
		return errors.Join(err, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
	}
	if err := write("ours.db"); !IsDiskFull(err) || IsFatal(err) {
		t.Errorf("a write that the limit refuses: %v, code %d. SQLite does not write by writeOrNoRoom: see countNoRoom, "+
			"and what sqlite3_vfs and libc look like now", err, Code(err))
	}
	setPwrite(t, 0)
	if err := write("sqlite.db"); !IsFatal(err) {
		t.Errorf("without countNoRoom: %v, code %d. SQLite may know this error now: see whether countNoRoom can go",
			err, Code(err))
	}
}

// setPwrite has SQLite write by the function at this address; by its own if that is 0.
func setPwrite(t *testing.T, address uintptr) {
	t.Helper()
	thread := libc.NewTLS()
	defer thread.Close()
	vfs := valueAt[sqlite3.Tsqlite3_vfs](sqlite3.Xsqlite3_vfs_find(thread, 0))
	set := function[func(*libc.TLS, uintptr, uintptr, uintptr) int32](vfs.FxSetSystemCall)
	for _, call := range []string{"pwrite64", "pwrite"} {
		name, err := libc.CString(call)
		if err != nil {
			t.Fatal(err)
		}
		set(thread, 0, name, address)
		libc.Xfree(thread, name)
	}
}

// BenchmarkWrite writes a page by SQLite's own function and by ours, which calls it.
func BenchmarkWrite(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "page"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	c, err := OpenMemory()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	processWide.Do(countNoRoom)
	thread := libc.NewTLS()
	defer thread.Close()
	page := libc.Xcalloc(thread, 1, 4096)
	defer libc.Xfree(thread, page)
	for _, way := range []struct {
		name  string
		write pwrite
	}{{"sqlite", systemWrite}, {"ours", writeOrNoRoom}} {
		b.Run(way.name, func(b *testing.B) {
			for range b.N {
				if n := way.write(thread, int32(f.Fd()), page, 4096, 0); n != 4096 {
					b.Fatal(n)
				}
			}
		})
	}
}
