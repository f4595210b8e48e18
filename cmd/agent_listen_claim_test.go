package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Two workers share the messages: each goes to one of them, and both have some.
func TestWorkersShareMessages(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGINT")
	tool(t, "sh")
	p := newPair(t)
	dir := t.TempDir()
	// A command waits until the other worker has one too.
	both := `touch '` + dir + `'/$W; ` + until(`test $(ls '`+dir+`' | wc -l) -ge 2`) + `; echo "$W $RELAY_MESSAGE_ID $RELAY_MESSAGE_ATTEMPT $(cat)"; test "$RELAY_MESSAGE_TYPE" != bad`
	var workers []*server
	for _, name := range []string{"first", "second"} {
		w := launchHere(t, []string{"listen", "--claim", "--worker", name, "--exec", "W=" + name + "; " + both}, p.bobEnv(p.url))
		w.await(w.stderr, `listening as bob\^talk, claiming as the worker `+name)
		workers = append(workers, w)
	}
	var ids []string
	for i := range 20 {
		ids = append(ids, p.send(p.alice, "bob^talk", fmt.Sprintf(`{ "n": %d }`, i)).MessageID)
	}
	bad := parse[record](t, p.ask(p.alice, "POST", "/api/v1/messages", `{"to":"bob^talk","message_type":"bad","payload":{}}`).want(t, 201)).MessageID
	for _, id := range ids {
		p.awaitStatus(id, "completed")
	}
	p.awaitStatus(bad, "failed")
	out := ""
	for _, w := range workers {
		out += w.interrupt().stdout.String()
		if w.stdout.String() == "" {
			t.Error("one worker got nothing")
		}
	}
	for i, id := range ids {
		if strings.Count(out, id+fmt.Sprintf(" 1 { \"n\": %d }\n", i)) != 1 {
			t.Errorf("%s was not handled once:\n%s", id, out)
		}
		tr := p.trace(p.bob, id)
		if tr.steps() != "accepted, claimed, acknowledged completed" || !strings.Contains(out, tr.Steps[1].Worker+" "+id) {
			t.Errorf("%+v", tr)
		}
	}
}

// A worker renews its lease while the command runs, finishes that command after the signal
// to stop, and leaves to others what it has not claimed.
func TestAWorkerRenewsAndStops(t *testing.T) {
	t.Parallel()
	notShort(t)
	notOnWindows(t, "there is no SIGINT")
	tool(t, "sh")
	p := newPair(t)
	dir := t.TempDir()
	held, free := p.send(p.alice, "bob^talk", `{}`).MessageID, p.send(p.alice, "bob^talk", `{}`).MessageID
	l := p.listenAsProcess("--claim", "--lease", "12s", "--exec", `echo begun; `+until(`test -e '`+dir+`/go'`))
	l.await(l.stdout, "begun")
	if err := l.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	// Renewals leave no steps of their own but the first.
	p.awaitStatus(held, "processing")
	first, err := time.Parse(time.RFC3339, p.trace(p.bob, held).Steps[1].Until)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the lease is renewed twice", func() bool { return leaseEnd(t, p.db).Sub(first) > 6*time.Second })
	if got := p.trace(p.bob, held).steps(); got != "accepted, claimed, progress processing" {
		t.Errorf("%s", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := l.wait(); code != 0 || l.stdout.String() != "begun\n" {
		t.Errorf("exit %d, %q: %s", code, l.stdout, l.stderr)
	}
	if got := p.record(p.bob, held).status(); got != "completed" {
		t.Errorf("%s is %q", held, got)
	}
	if got := p.trace(p.bob, free); got.steps() != "accepted" {
		t.Errorf("%s", got.steps())
	}
}

// A worker kills its command when the message is no longer pending, and when it could not
// renew the lease in time; then the message is redelivered.
func TestAWorkerThatLosesItsLeaseKillsItsCommand(t *testing.T) {
	t.Parallel()
	notShort(t)
	notOnWindows(t, "there is no kill -9")
	tool(t, "sh")
	p := newPairWithProcess(t)
	f := newFront(t, p.server)
	l := launchHere(t, []string{"listen", "--claim", "--lease", "10s", "--exec", `echo "begun $RELAY_MESSAGE_ATTEMPT"; test "$RELAY_MESSAGE_ATTEMPT" = 2 || ` + until("false")}, p.bobEnv(f.url))
	done := p.send(p.alice, "bob^talk", `{}`).MessageID
	l.await(l.stdout, "begun 1")
	p.ackAs(p.bob, done, "completed", "")
	l.await(l.stderr, done+" is given up, and its command is killed: it is no longer pending")

	away := p.send(p.alice, "bob^talk", `{}`).MessageID
	l.await(l.stdout, "(?s:begun 1.*begun 1)")
	p.kill()
	l.await(l.stderr, away+" is given up, and its command is killed: its lease could not be renewed in time")
	p.server = startServer(t, p.db, "--require-message-signature")
	f.leadTo(p.server)
	l.await(l.stdout, "begun 2")
	p.awaitStatus(away, "completed")
	l.interrupt()
	got := p.trace(p.bob, away).steps()
	if !strings.HasSuffix(got, "returned, claimed, acknowledged completed") || strings.Contains(got, "failed") {
		t.Errorf("%s", got)
	}
}

func TestClaimUsage(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--claim", "--claim --ack completed", "--lease 10s --exec true", "--worker w --exec true", "--claim --exec true --lease 4s",
		"--claim --exec true --lease 61m", "--claim --exec true --lease 5500ms", "--claim --exec true --state none", "--claim --exec true --jobs 0",
		"--claim --exec true --worker \a", "--claim --exec true --worker " + strings.Repeat("w", 65)} {
		r := runRefused(t, append([]string{"listen"}, strings.Split(args, " ")...), []string{"RELAY_URL=http://127.0.0.1:1", "RELAY_KEY=mk_x"})
		if r.wantCode(t, 2, "Try: relay listen --help"); r.out != "" {
			t.Errorf("%s: %q", args, r.out)
		}
	}
}
