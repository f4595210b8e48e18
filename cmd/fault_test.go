package cmd_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/scratch"
	"relay/http/docs"
)

// The tests named TestCrash… hold the relay to what "relay docs promises" says,
// while something fails. They, and others that meet chance, are short by
// default: each kind of check once at least. The long form has the costly ones of a
// kind as well, and repeats them:
//
//	go test ./cmd -run Crash -long

// rounds returns how often a fault is made, or how much there is of something. The long form
// goes a sixth of the way to the larger number, and all of it if RELAY_TEST_FULL is set.
func rounds(t testing.TB, usual, longer int) int {
	switch {
	case !scratch.Long(t):
		return usual
	case !full():
		return usual + (longer-usual+5)/6
	}
	return longer
}

func full() bool { return os.Getenv("RELAY_TEST_FULL") != "" }

// questions returns how many questions two agents exchange. RELAY_TEST_CLIENTS makes it 2,000.
func questions(t testing.TB) int {
	if os.Getenv("RELAY_TEST_CLIENTS") != "" {
		return 2000
	}
	return rounds(t, 24, 300)
}

// notQuick leaves a test to the long form. The usual form has a test of the same kind that takes less.
func notQuick(t *testing.T) {
	t.Helper()
	if !scratch.Long(t) {
		t.Skip("takes long; -long runs it")
	}
}

// notQuickButForRaces leaves a test to the long form, and to the race detector.
func notQuickButForRaces(t *testing.T) {
	t.Helper()
	if !raceDetector {
		notQuick(t)
	}
}

// ledger is what senders were told, to be held against the store afterwards.
type ledger struct {
	mu       sync.Mutex
	accepted map[string]string // message id → the token in its payload
	open     map[string]bool   // tokens whose fate the sender does not know
	refused  map[string]bool   // tokens of which the relay said that nothing was written
	codes    map[string]int    // of the refusals
	last     map[string]string // sender → its newest message id
}

func newLedger() *ledger {
	return &ledger{accepted: map[string]string{}, open: map[string]bool{}, refused: map[string]bool{}, codes: map[string]int{}, last: map[string]string{}}
}

// send sends one message of a token and writes down what became of it. It gives
// the status; 0: no answer.
func (l *ledger) send(s *server, from agent, to, token string, bytes int) int {
	body := fmt.Sprintf(`{"to":%q,"payload":{"token":%q,"text":"%s"}}`, to, token, strings.Repeat("x", bytes))
	ans, err := from.request("POST", "/api/v1/messages", body).to(s.url)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && ans.status == 201:
		m := parse[record](s.t, ans.body)
		if m.MessageID <= l.last[from.Address] {
			s.t.Errorf("%s was accepted after %s", m.MessageID, l.last[from.Address])
		}
		l.accepted[m.MessageID], l.last[from.Address] = token, m.MessageID
		return 201
	case err == nil && ans.status != 500 && ans.code() != "":
		l.refused[token] = true
	default:
		l.open[token] = true
	}
	if err != nil {
		return 0
	}
	l.codes[ans.code()]++
	return ans.status
}

// compare reads the recipient's history: an accepted message is there, once and in
// order; a refused one is not; one without an answer is there at most once.
func (l *ledger) compare(s *server, to agent) {
	s.t.Helper()
	seen, before, lost := map[string]bool{}, "", 0
	there := map[string]bool{}
	for _, m := range s.history(to, "direction=in&include=payload") {
		p := parse[struct{ Token string }](s.t, m.Payload)
		switch {
		case seen[p.Token]:
			s.t.Errorf("%s is there twice", p.Token)
		case m.MessageID <= before:
			s.t.Errorf("%s stands after %s", m.MessageID, before)
		case l.refused[p.Token]:
			s.t.Errorf("%s was refused, and is there", p.Token)
		case l.accepted[m.MessageID] != p.Token && !l.open[p.Token]:
			s.t.Errorf("%s has %s, its sender was told %q", m.MessageID, p.Token, l.accepted[m.MessageID])
		}
		seen[p.Token], there[m.MessageID], before = true, true, m.MessageID
	}
	for id, token := range l.accepted {
		if !there[id] {
			lost++
			s.t.Errorf("%s (%s) got its 201 and is lost", id, token)
			if lost == 5 {
				s.t.FailNow()
			}
		}
	}
}

// wantWhole runs relay check on the file, if that ring is there.
func wantWhole(t testing.TB, db string) {
	t.Helper()
	if !docs.Has("check") {
		return
	}
	if r := runRelay(t, "check", "--db", db); r.code != 0 {
		t.Errorf("relay check: exit %d\n%s%s", r.code, r.out, r.err)
	}
}

// wantExit expects the process to end on its own with a code, and to say why.
func (s *server) wantExit(code int, says ...string) {
	s.t.Helper()
	if got := s.wait(); got != code {
		s.t.Errorf("exit %d, want %d", got, code)
	}
	for _, text := range says {
		if !strings.Contains(s.stderr.String(), text) {
			s.t.Errorf("stderr lacks %q:\n%s", text, s.stderr)
		}
	}
}

// mountTmpfs returns a directory with a file system of its own, of so many MiB.
func mountTmpfs(t *testing.T, mib int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	tool(t, "mount", "umount")
	dir := t.TempDir()
	mount(t, "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mib), "relay-test", dir)
	t.Cleanup(func() { unmount(t, dir) }) // after the servers on it have been killed
	return dir
}

func mount(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		t.Skipf("mount: %v: %s", err, out)
	}
}

func unmount(t *testing.T, dir string) {
	eventually(t, patience, "unmounted", func() bool { return exec.Command("umount", dir).Run() == nil })
}

// goOn sends from several senders until stop is closed or nobody answers.
func (l *ledger) goOn(s *server, from []agent, to string, bytes int, stop <-chan struct{}) (wait func()) {
	var wg sync.WaitGroup
	for _, a := range from {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-s.exited:
					return
				default:
				}
				if !scratch.Long(s.t) {
					time.Sleep(rand.N(4 * time.Millisecond)) // the usual form needs a load that continues, not the largest
				}
				token := fmt.Sprintf("%s/%d/%d", a.Address, time.Now().UnixNano(), n)
				switch l.send(s, a, to, token, bytes) {
				case 0:
					return
				case 507:
					time.Sleep(5 * time.Millisecond) // a refused client waits a little, too, and leaves the machine to others
				}
			}
		})
	}
	return wg.Wait
}

// count returns how many messages have been accepted so far.
func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted)
}

// traced reports whether all threads of a server are being traced (proc(5)).
func traced(s *server) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", s.cmd.Process.Pid))
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), "\nTracerPid:\t0\n") {
			return false
		}
	}
	return len(files) > 0
}
