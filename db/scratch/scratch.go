// Package scratch gives tests folders for their files, and addresses to listen at. A test
// uses a file in Dir, or in testing.T's TempDir if it is about the disk. Time enters a test by a
// field, such as Now, and not by sleeping.
//
// A test passes on a slow machine, where a process may stand still for seconds at any line. It does
// not need to act within a deadline of the program, such as a lease: it runs in a bubble, where time
// waits for it (package wire), gives the program more time by a field, or asks again with the same
// Idempotency-Key. It waits for a background job instead of
// assuming that it has run. An address that is used twice comes from Addr. To try a test, put a
// time.Sleep at the line in doubt; or let go test -exec start all of them in a control group of
// half a processor, or in one that is frozen for some seconds now and then.
package scratch

import (
	"os"
	"testing"
	"time"
)

// Dir returns a folder for the files of a test, which is removed when the test ends. In the
// usual form of the tests the folder is in memory (see Memory), because much of the
// time of many small tests is the disk's. In the long form (-long), and in benchmarks, it
// is on disk, like the files of a relay. A test that is about the disk uses t.TempDir.
//
// The path is short however long the name of the test is: a socket for commands fits next to a
// file in it.
func Dir(t testing.TB) string {
	t.Helper()
	if _, bench := t.(*testing.B); bench || *long {
		return folder(t, "")
	}
	return Memory(t)
}

// Root returns the folder in which Memory makes folders, or "" if they are on disk. A test
// program whose processes make files of their own can set TMPDIR to it.
func Root() string { return inMemory() }

// minFree is how many bytes must be free in memory. All tests that run at the same time use
// less than a tenth of it.
const minFree = 2 << 30

// Memory returns a folder in memory, where a sync costs nothing, which is removed when the
// test ends. The folder is on disk, as Dir's with -long, where the system has no file system
// in memory or too little of it is free.
func Memory(t testing.TB) string {
	t.Helper()
	return folder(t, Root())
}

// folder makes a folder in root, or where the system has its temporary files if root is "" or takes
// none, and removes it when the test ends.
func folder(t testing.TB, root string) string {
	t.Helper()
	dir, err := os.MkdirTemp(root, "relay-test-")
	if err != nil {
		dir, err = os.MkdirTemp("", "relay-test-")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := os.RemoveAll(dir)
		for again := 0; err != nil && again < 100; again++ { // Windows keeps files of processes that have just ended
			time.Sleep(20 * time.Millisecond)
			err = os.RemoveAll(dir)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Eventually waits for a condition that nothing announces, and fails the test if it does not hold within a time.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	began := time.Now()
	for end := began.Add(within); !holds(); time.Sleep(NextLook(time.Since(began))) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// NextLook returns how long to wait before the next look at a condition: a tenth of the wait so far, from 5 to 100 ms.
func NextLook(waited time.Duration) time.Duration {
	return min(max(waited/10, 5*time.Millisecond), 100*time.Millisecond)
}
