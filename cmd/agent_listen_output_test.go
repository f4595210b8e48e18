package cmd_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listenInto starts relay listen as bob with a pipe for its stdout, and gives
// the end to read from.
func (p *pair) listenInto(args ...string) (*server, *os.File) {
	p.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { r.Close() })
	c := exec.Command(binary, append([]string{"listen"}, args...)...)
	c.Stdout = w
	l := launch(p.t, c, p.bobEnv(p.url))
	w.Close()
	l.await(l.stderr, `listening as bob\^talk`)
	return l, r
}

// A command dies when nobody reads what it prints. That is not the fault of its
// message, nor of the messages after it.
func TestACommandThatPrintsToNobodyFailsNoMessage(t *testing.T) {
	notOnWindows(t, "there is no poll")
	tool(t, "sh")
	t.Parallel()
	p := newPair(t)
	dir := t.TempDir()
	l, r := p.listenInto("--exec", `echo begun; `+until(`test -e '`+dir+`/go'`)+`; echo done`)
	m := p.send(p.alice, "bob^talk", `{}`)
	next := p.send(p.alice, "bob^talk", `{}`)
	if _, err := io.ReadFull(r, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := l.wait(); code != 1 || !strings.Contains(l.stderr.String(), "nobody reads the output") {
		t.Errorf("exit %d: %s", code, l.stderr)
	}

	// No further command begins.
	l, r = p.listenInto("--exec", `touch '`+dir+`/begun'; echo begun`, "--state", "none")
	for _, id := range []string{m.MessageID, next.MessageID} {
		if got := p.record(p.bob, id); got.status() == "failed" {
			t.Errorf("%+v", got.Ack)
		}
	}
	p.awaitStatus(next.MessageID, "completed")
	if err := os.Remove(filepath.Join(dir, "begun")); err != nil {
		t.Fatal(err)
	}
	r.Close()
	m = p.send(p.alice, "bob^talk", `{}`)
	if code := l.wait(); code != 1 {
		t.Errorf("exit %d: %s", code, l.stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil || p.record(p.bob, m.MessageID).State != "queued" {
		t.Errorf("%v, %+v", err, p.record(p.bob, m.MessageID))
	}
}

// The listener ends even if the reader of its output has stopped reading.
func TestListenEndsThoughNobodyTakesWhatItPrints(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGTERM")
	p := newPair(t)
	m := p.send(p.alice, "bob^talk", `{"text":"`+strings.Repeat("a", 200<<10)+`"}`)
	l, r := p.listenInto("--ack", "completed")
	if _, err := io.ReadFull(r, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	l.wantEndedBySignals()
	if got := p.record(p.bob, m.MessageID); got.State != "queued" {
		t.Errorf("%+v", got)
	}
}

// A process that a command leaves running holds the output open. The listener
// waits for it only briefly.
func TestACommandThatHasEndedHasNotTakenTooLong(t *testing.T) {
	tool(t, "sh", "sleep")
	t.Parallel()
	for command, want := range map[string]string{"sleep 7 & exit 0": "completed ", "sleep 7 & echo 'no seats' >&2; exit 3": "failed no seats"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			l := p.listen("--exec", command, "--timeout", "4s")
			got := ""
			for try := 0; try < 5 && got != want; try++ { // a busy machine may take longer for a shell
				m := p.send(p.alice, "bob^talk", `{}`)
				eventually(t, patience, "an ack", func() bool { return p.record(p.bob, m.MessageID).Ack != nil })
				r := p.record(p.bob, m.MessageID)
				got = r.status() + " " + r.Ack.Detail
			}
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
			l.interrupt()
		})
	}
}

func TestAFullLogFailsNoMessage(t *testing.T) {
	tool(t, "sh")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	p := newPair(t)
	m := p.send(p.alice, "bob^talk", `{}`)
	c := exec.Command(binary, "listen", "--exec", "echo a word >&2")
	c.Stderr = full
	launch(t, c, p.bobEnv(p.url))
	eventually(t, patience, "an ack", func() bool { return p.record(p.bob, m.MessageID).Ack != nil })
	if got := p.record(p.bob, m.MessageID); got.status() != "completed" {
		t.Errorf("%+v", got.Ack)
	}
}
