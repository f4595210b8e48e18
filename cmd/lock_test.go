package cmd_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A process that is stopped in the middle of a transaction keeps the write lock. The
// relay cannot take it away. It says so, in its log and to those who ask whether it is
// ready, and continues on its own when the lock is free.
func TestAStoppedProcessThatHasTheWriteLockIsNamed(t *testing.T) {
	notOnWindows(t, "there is no SIGSTOP")
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^lock")[0]
	s := startProcess(t, db)
	ready := func() answer { return s.ask(a, "GET", "/readyz", "") }
	ready().want(t, http.StatusOK)
	for range 2 {
		n := startNeighbour(t, db)
		n.does("BEGIN IMMEDIATE")
		pause(n.server)
		eventually(t, patience, "the relay is not ready", func() bool { return ready().status != http.StatusOK })
		ready().wantProblem(t, http.StatusServiceUnavailable, "database_locked")
		if runtime.GOOS == "linux" {
			s.await(s.stderr, fmt.Sprintf(`holds the write lock[^\n]* holder="pid %d \([^\n]*\), stopped"`, n.cmd.Process.Pid))
		} else {
			s.await(s.stderr, "holds the write lock")
		}
		s.ask(a, "GET", "/api/v1/whoami", "").want(t, http.StatusOK) // reads continue
		resume(n.server)
		n.does("ROLLBACK")
		eventually(t, patience, "the relay is ready again", func() bool { return ready().status == http.StatusOK })
		s.send(a, "a^lock", `{}`)
		n.kill()
	}
	for _, line := range []string{"holds the write lock", "is free again"} {
		if n := strings.Count(s.stderr.String(), line); n != 2 {
			t.Errorf("%q is %d times in the log:\n%s", line, n, s.stderr)
		}
	}
}

// The relay finds a revocation while its writer waits for the lock: another process
// commits the revocation, and takes the lock again at once. The write that waited is
// refused with a code that says why. The writer waits for half a minute, so this test begins
// before those that run in parallel, and joins them while it waits.
func TestARevocationIsFoundWhileTheWriterWaits(t *testing.T) {
	besideOthers := sync.OnceFunc(t.Parallel)
	for range 5 { // the writer may get the lock in between
		if revokedWhileTheWriterWaits(t, besideOthers) {
			return
		}
	}
	t.Error("the writer never waited")
}

// revokedWhileTheWriterWaits returns false if the writer did not wait.
func revokedWhileTheWriterWaits(t *testing.T, besideOthers func()) bool {
	db := tempDB(t)
	keys := issue(t, db, "a^lock", "b^lock")
	a, b := keys[0], keys[1]
	s := startProcess(t, db)
	conn := s.dial(a, "")
	n := startNeighbour(t, db)
	n.does("BEGIN IMMEDIATE")
	sent := make(chan answer, 1)
	go func() {
		ans, _ := b.request("POST", "/api/v1/messages", `{"to":"b^lock","payload":{}}`).to(s.url)
		sent <- ans
	}()
	n.does("UPDATE setting SET value = value + 1 WHERE name = 'keys_version'")
	n.does(fmt.Sprintf("UPDATE mecha_key SET revoked_at = created_at WHERE public_id = '%s'", a.KeyID))
	n.does("COMMIT; BEGIN IMMEDIATE")
	eventually(t, patience, "the key is refused", func() bool { return s.ask(a, "GET", "/api/v1/whoami", "").code() == "key_revoked" })
	wantClosed(t, conn, websocket.StatusPolicyViolation, patience)
	if ans, err := a.request("GET", "/api/v1/ws/mecha/"+a.Address, "").to(s.url); err != nil || ans.code() != "key_revoked" {
		t.Errorf("a handshake: %v %s", err, ans.body)
	}
	select {
	case <-sent:
		return false
	default:
	}
	besideOthers() // they may be as long as the writer waits
	ans := <-sent
	n.does("ROLLBACK")
	if ans.status == http.StatusCreated { // it was only late
		return false
	}
	ans.wantProblem(t, http.StatusServiceUnavailable, "database_locked")
	s.send(b, "b^lock", `{}`)
	return true
}

// Ctrl-Z stops a command that writes only between two transactions, so a server next to it continues.
func TestCtrlZLeavesTheWriteLockFree(t *testing.T) {
	notShort(t)
	notOnWindows(t, "there is no Ctrl-Z that stops")
	tool(t, "ps")
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^lock")[0]
	s := startProcess(t, db, "--rate-limit", "0")
	many := rounds(t, 300, 26_000)
	args := []string{"key", "create", "--json", "--db", db}
	for i := range many {
		args = append(args, fmt.Sprintf("m%d^lock", i))
	}
	writing := launch(t, exec.Command(binary, args...), nil)
	for range rounds(t, 2, 212) {
		time.Sleep(rand.N(20 * time.Millisecond)) // at any moment of the writing
		ctrlZ(writing)
		eventually(t, patience, "the command stands still", func() bool { return stopped(writing) || writing.ended() })
		if writing.ended() {
			break
		}
		s.send(a, "a^lock", `{}`)
		resume(writing)
	}
	if code, made := writing.wait(), strings.Count(writing.stdout.String(), "\n"); code != 0 || made != many {
		t.Errorf("exit %d: %d keys of %d: %s", code, made, many, writing.stderr)
	}
	held := "holds the write lock"
	if runtime.GOOS == "linux" { // where the log tells that it stands still; one that is slow may hold the lock for a second
		held += fmt.Sprintf(`[^\n]* holder="pid %d \([^\n]*\), stopped"`, writing.cmd.Process.Pid)
	}
	if log := s.stderr.String(); regexp.MustCompile(held).MatchString(log) {
		t.Error(log)
	}
}

// stopped asks the system whether a process stands still. Linux answers by a file (proc(5)), where the state follows the
// name in parentheses: to start ps at every look would take more of the processor than the test.
func stopped(s *server) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid)); err == nil {
		return strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " T")
	}
	state, _ := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(s.cmd.Process.Pid)).Output()
	return strings.HasPrefix(strings.TrimSpace(string(state)), "T")
}

// A process that stands still while it reads keeps the log from being copied. The relay
// says so, and the log becomes short again when the process has gone. It says so after a while, so this
// test, too, begins before those that run in parallel.
func TestAReaderThatStandsStillIsNamed(t *testing.T) {
	notOnWindows(t, "there is no SIGSTOP")
	db := tempDB(t)
	a := issue(t, db, "a^log")[0]
	s := startProcess(t, db, "--rate-limit", "0")
	large := fmt.Sprintf(`{"text":"%0900000d"}`, 1)
	n := startNeighbour(t, db)
	n.does("BEGIN")
	n.does("SELECT count(*) FROM message")
	pause(n.server)
	for logSize(t, db) < 36<<20 { // more than the writer lets it grow
		s.send(a, "a^log", large)
	}
	t.Parallel()
	if runtime.GOOS == "linux" {
		s.await(s.stderr, fmt.Sprintf(`reads an old state[^\n]* log_bytes=\d{8,} [^\n]* holder="pid %d \([^\n]*\), stopped"`, n.cmd.Process.Pid))
	} else {
		s.await(s.stderr, "reads an old state")
	}
	n.kill()
	s.await(s.stderr, "log is copied again") // without a further write
	eventually(t, patience, "the log is short", func() bool {
		s.send(a, "a^log", `{}`)
		return logSize(t, db) <= 17<<20
	})
}

func logSize(t *testing.T, db string) int64 {
	t.Helper()
	info, err := os.Stat(db + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
