package cmd_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/db/scratch"
)

// inject makes system calls of a running server fail on some of its files, from
// now on until heal. It needs strace, and the right to trace.
func inject(t *testing.T, s *server, call, errno, when string, files ...string) (heal func()) {
	t.Helper()
	args := []string{"-f", "-p", fmt.Sprint(s.cmd.Process.Pid), "-o", "/dev/null",
		"-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:error=%s:when=%s", call, errno, when)}
	for _, f := range files {
		args = append(args, "-P", f)
	}
	tracer := launch(t, exec.Command("strace", args...), nil)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // strace attaches thread by thread
		text, _ := tracer.stderr.read()
		select {
		case <-tracer.exited:
			t.Skipf("strace cannot attach here: %s", text)
		default:
		}
		if traced(s) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("strace does not attach: %s", text)
		}
	}
	return func() {
		// strace replaces a call that is to fail by an invalid one when it begins, and sets the error when it ends. If
		// strace lets go in between, the server sees ENOSYS. While the server stands still, no call is under way.
		pause(s)
		eventually(t, patience, "the server stands still", func() bool {
			return threadsAre(s, "tT") && threadsAre(tracer, "S")
		})
		tracer.cmd.Process.Signal(syscall.SIGINT) // it lets go of the server and ends
		<-tracer.exited
		resume(s)
	}
}

// threadsAre reports whether each thread of a process has one of some states (proc_pid_stat(5)).
func threadsAre(s *server, states string) bool {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.cmd.Process.Pid))
	for _, name := range all {
		stat, err := os.ReadFile(name)
		if err != nil || !strings.ContainsRune(states, rune(stat[bytes.LastIndexByte(stat, ')')+2])) {
			return false
		}
	}
	return len(all) > 0
}

// The disk fails, as it really does: with an error of one system call, in the
// middle of the load.
func TestCrashTheDiskFailsACall(t *testing.T) {
	notShort(t)
	tool(t, "strace")
	t.Parallel()
	type failure struct{ call, errno, file string }
	failures := []failure{{"fsync", "EIO", "-wal"}} // the commit's fsync
	if scratch.Long(t) {
		failures = append(failures,
			failure{"fsync", "EIO", ""},          // a checkpoint's
			failure{"pwrite64", "EROFS", "-wal"}, // the file system has become read-only
			failure{"fsync", "ENOSPC", "-wal"},   // a write finds that there is no space; when an fsync does, data is lost
			failure{"pwrite64", "EIO", "-wal"}, failure{"pwrite64", "EIO", ""})
	}
	for _, c := range failures {
		t.Run(fmt.Sprintf("%s of relay.db%s: %s", c.call, c.file, c.errno), func(t *testing.T) {
			t.Parallel()
			for range rounds(t, 1, 10) {
				db, l := tempDB(t), newLedger()
				keys := issue(t, db, "a^inject", "b^inject", "c^inject", "d^inject")
				s := startProcess(t, db, "--rate-limit", "0")
				wait := l.goOn(s, keys[:3], "d^inject", 40_000, nil) // so that checkpoints come soon
				eventually(t, patience, "messages are accepted", func() bool { return l.count() > 20 })
				inject(t, s, c.call, c.errno, "1", db+c.file)
				s.wantExit(75, "the store has failed", "disk I/O error")
				wait()
				wantWhole(t, db)
				s = startServer(t, db)
				l.compare(s, keys[3])
				t.Logf("%d messages accepted, %d without an outcome: none lost, doubled or out of order", l.count(), len(l.open))
				s.end()
			}
		})
	}
}

// One write of many finds no space. It is refused, and the next one may succeed. A quota
// and a limit of file sizes count as a full disk, too.
func TestCrashTheDiskIsFullForACall(t *testing.T) {
	notQuick(t)
	tool(t, "strace")
	t.Parallel()
	type file struct{ suffix, errno string }
	files := []file{{"-wal", "ENOSPC"}, {"", "EDQUOT"}}
	if scratch.Long(t) {
		files = append(files, file{"-shm", "ENOSPC"}, file{"-wal", "EDQUOT"}, file{"-wal", "EFBIG"}, file{"", "ENOSPC"})
	}
	for _, c := range files {
		t.Run("relay.db"+c.suffix+": "+c.errno, func(t *testing.T) {
			t.Parallel()
			for range rounds(t, 1, 4) {
				fullForACall(t, c.suffix, c.errno)
			}
		})
	}
}

func fullForACall(t *testing.T, suffix, errno string) {
	db, l := tempDB(t), newLedger()
	keys := issue(t, db, "a^nospace", "b^nospace", "c^nospace", "d^nospace")
	s := startProcess(t, db, "--rate-limit", "0", "--min-free-disk", "0")
	stop := make(chan struct{})
	room := 40_000 // so that the log soon needs to be copied into the file, or a larger index
	if suffix == "-wal" {
		room = 1000
	}
	wait := l.goOn(s, keys[:3], "d^nospace", room, stop)
	eventually(t, patience, "messages are accepted", func() bool { return l.count() > 20 })
	release := func() {}
	if suffix == "-shm" { // the index of the log grows with the log, which a reader makes grow
		release = holdLog(t, db)
		eventually(t, patience, "the log will soon need a larger index", func() bool { return logSize(t, db) > 13<<20 })
	}
	heal := inject(t, s, "pwrite64", errno, "1+", db+suffix)
	if suffix == "" {
		s.await(s.stderr, `cannot be copied into the database.*full`)
	} else {
		eventually(t, patience, "messages are refused", func() bool { return l.refusals("disk_full") > 5 })
	}
	s.ask(keys[0], "GET", "/api/v1/whoami", "").want(t, 200)
	s.history(keys[3], "")
	heal()
	release()
	before := l.count()
	eventually(t, patience, "messages are accepted again", func() bool { return l.count() > before+20 })
	close(stop)
	wait()
	l.compare(s, keys[3])
	s.kill()
	wantWhole(t, db)
	s = startProcess(t, db)
	l.compare(s, keys[3])
	t.Logf("%d messages accepted, refused: %v: none lost, doubled or out of order", l.count(), l.codes)
	if l.codes["store_failed"]+l.codes["internal"] > 0 {
		t.Errorf("a full disk was answered otherwise: %v", l.codes)
	}
	s.kill()
}

// holdLog keeps a read transaction open until release, so that the log is not restarted.
func holdLog(t *testing.T, db string) (release func()) {
	t.Helper()
	d, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: filepath.ToSlash(db), RawQuery: "mode=ro"}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	view, err := d.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := view.QueryRow("SELECT count(*) FROM message").Scan(&n); err != nil { // the first read fixes the state that is seen
		t.Fatal(err)
	}
	return func() { view.Rollback() }
}

func (l *ledger) refusals(code string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.codes[code]
}
