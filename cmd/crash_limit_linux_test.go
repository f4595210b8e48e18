package cmd_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The log meets a limit of file sizes (ulimit -f) in the middle of the load.
func TestCrashAFileMayNotGrow(t *testing.T) {
	t.Parallel()
	db, l := tempDB(t), newLedger()
	keys := issue(t, db, "a^limit", "b^limit", "c^limit")
	s := startProcess(t, db, "--rate-limit", "0", "--min-free-disk", "0")
	stop := make(chan struct{})
	wait := l.goOn(s, keys[:2], "c^limit", 40_000, stop)
	eventually(t, patience, "messages are accepted", func() bool { return l.count() > 20 })
	limit := func(bytes uint64) {
		t.Helper()
		if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
			t.Skip("the limits of another process cannot be set here: ", err)
		}
	}
	limit(uint64(sizeOf(t, db+"-wal")) + 200_000)
	eventually(t, patience, "messages are refused", func() bool { return l.refusals("disk_full") > 5 })
	s.history(keys[2], "")
	limit(unix.RLIM_INFINITY)
	before := l.count()
	eventually(t, patience, "messages are accepted again", func() bool { return l.count() > before+20 })
	close(stop)
	wait()
	l.compare(s, keys[2])
	s.kill()
	wantWhole(t, db)
	if l.codes["store_failed"]+l.codes["internal"] > 0 {
		t.Errorf("a limit was answered as another fault: %v", l.codes)
	}
}
