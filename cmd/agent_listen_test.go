package cmd_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"relay/db/scratch"
)

func TestListenPrintsAndResumes(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGINT")
	p := newPair(t)
	body := `{"to":"bob^talk","message_type":"note","priority":"high","conversation_id":"trip-17","correlation_id":"c","payload":{ "b": 1.50,  "a": "<für Bob>" }}`
	m := parse[record](t, p.ask(p.alice, "POST", "/api/v1/messages", body).want(t, 201))
	state := filepath.Join(t.TempDir(), "state.json")
	l := p.listen("--state", state)
	l.await(l.stdout, "\n")
	want := `{"message_id":"` + m.MessageID + `","conversation_id":"trip-17","from":"alice^talk","to":"bob^talk","message_type":"note","priority":"high",` +
		`"correlation_id":"c","created_at":"` + m.CreatedAt.Format("2006-01-02T15:04:05.000Z") + `","payload":{ "b": 1.50,  "a": "<für Bob>" }}` + "\n"
	if got := l.stdout.String(); got != want {
		t.Errorf("printed %s\nwant    %s", got, want)
	}
	p.send(p.alice, "bob^talk", "{\"live\":\n1}")
	l.await(l.stdout, `"payload":{"live":1}}\n`)
	l.interrupt()
	if p.record(p.bob, m.MessageID).State != "queued" {
		t.Error("printing changed a state")
	}
	if info, err := os.Stat(state); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	// It continues where it was with the named file, and from the start with another.
	next := p.send(p.alice, "bob^talk", `{}`)
	l = p.listen("--state", state)
	l.await(l.stdout, "\n")
	if got := l.interrupt().messages(); len(got) != 1 || got[0].MessageID != next.MessageID {
		t.Errorf("resumed with %+v", got)
	}
	for _, args := range [][]string{nil, {"--state", "none"}} {
		l = p.listen(args...)
		l.await(l.stdout, next.MessageID)
		if got := l.interrupt().messages(); len(got) != 3 {
			t.Errorf("%v: printed %+v", args, got)
		}
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(p.asBob[2], "XDG_STATE_HOME="), "relay", "listen-bob^talk-*.json"))
	if err != nil || len(files) != 1 {
		t.Errorf("state files: %v, %v", files, err)
	}

	// Two listeners cannot keep their place in one file, and a file that is not a state file is not touched.
	l = p.listen("--state", state)
	does(t, p.asBob, "listen", "--state", state).wantCode(t, 1, "another relay listen", "--state")
	l.interrupt()
	run(t, []string{"listen", "--state", state}, p.asAlice, "").wantCode(t, 1, "says where bob^talk stopped", "--state")
	wrong := filepath.Join(t.TempDir(), "wrong.json")
	for content, says := range map[string]string{
		"hello": "is not a file of relay listen", `{"mecha_id":"bob^talk","after":"msg_0t3z1hj9e001xzqx8pz68qj0y4"}`: "does not know the message",
	} {
		if err := os.WriteFile(wrong, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		does(t, p.asBob, "listen", "--state", wrong).wantCode(t, 1, says, "--state")
	}
	does(t, p.asBob, "listen", "--state", filepath.Join(wrong, "no")).wantCode(t, 1, wrong)
}

func TestListenAcks(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGINT")
	p := newPair(t)
	var sent []record
	for range 100 {
		sent = append(sent, p.send(p.alice, "bob^talk", `{}`))
	}
	p.ackAs(p.bob, sent[50].MessageID, "completed", "") // by somebody else
	l := p.listen("--ack", "Completed")
	l.await(l.stdout, sent[99].MessageID)
	got := l.interrupt().messages()
	if len(got) != 99 {
		t.Fatalf("printed %d messages", len(got))
	}
	for i, m := range got {
		want := sent[i+i/50].MessageID
		if m.MessageID != want {
			t.Fatalf("number %d is %s, want %s", i, m.MessageID, want)
		}
		if p.record(p.bob, want).status() != "completed" {
			t.Errorf("%s is not acknowledged, though the listener has ended", want)
		}
	}
	// With an ack that is not final, the file keeps the place.
	m := p.send(p.alice, "bob^talk", `{}`)
	l = p.listen("--ack", "received")
	l.await(l.stdout, m.MessageID)
	l.interrupt()
	p.awaitStatus(m.MessageID, "received")
	m = p.send(p.alice, "bob^talk", `{}`)
	l = p.listen("--ack", "received")
	l.await(l.stdout, m.MessageID)
	if got := l.interrupt().messages(); len(got) != 1 {
		t.Errorf("printed again: %+v", got)
	}
}

// A client that does not ack gets a bounded number of messages from the relay,
// and then nothing for a minute. The listener must not wait for that.
func TestListenPagesThroughABacklog(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGINT")
	p := newPair(t, "--rate-limit", "0", "--sync-ack-wait", "0")
	n := scratch.Amount(t, 1500, 2500) // more than one page
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range n / 10 {
				p.send(p.alice, "bob^talk", `{}`)
			}
		})
	}
	wg.Wait()
	want := p.history(p.bob, "")
	l := p.listen()
	l.await(l.stdout, want[n-1].MessageID)
	live := p.send(p.alice, "bob^talk", `{}`)
	l.await(l.stdout, live.MessageID)
	got := l.interrupt().messages()
	if len(got) != n+1 {
		t.Fatalf("printed %d, want %d", len(got), n+1)
	}
	for i := range want {
		if got[i].MessageID != want[i].MessageID {
			t.Fatalf("number %d is %s, want %s", i, got[i].MessageID, want[i].MessageID)
		}
	}
}

func TestListenStopsWhenWaitingIsOfNoUse(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	stranger := issue(t, tempDB(t), "x^elsewhere")[0]
	run(t, []string{"listen"}, []string{"RELAY_URL=" + p.url, "RELAY_KEY=" + stranger.Key}, "").wantCode(t, 1, "unknown_key")
	run(t, []string{"listen"}, []string{"RELAY_URL=http://[::1", "RELAY_KEY=" + stranger.Key}, "").wantCode(t, 2, "--url")
	l := p.listen("--state", "none")
	mustRelay(t, "key", "revoke", p.bob.KeyID, "--db", p.db)
	if code := l.wait(); code != 1 || !strings.Contains(l.stderr.String(), "revoked") {
		t.Errorf("exit %d: %s", code, l.stderr)
	}
}

func TestListenWaitsForARelay(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no kill -9")
	p := newPairWithProcess(t)
	f := newFront(t, p.server)
	p.kill()
	l := launchHere(t, []string{"listen", "--ack", "completed"}, p.bobEnv(f.url))
	l.await(l.stderr, "trying again in")
	for round := range 3 {
		p.server = startProcess(t, p.db)
		f.leadTo(p.server)
		m := p.send(p.alice, "bob^talk", `{}`)
		l.await(l.stdout, m.MessageID)
		p.awaitStatus(m.MessageID, "completed")
		p.kill()
		l.await(l.stderr, strings.Repeat(`(?s:listening as bob\^talk.*trying again in.*)`, round+1))
	}
	l.interrupt()
	if got := l.messages(); len(got) != 3 {
		t.Errorf("printed %+v", got)
	}
}

func TestListenUsage(t *testing.T) {
	for _, args := range []string{"now", "--reply", "--jobs 2", "--timeout 1s", "--jobs 0 --exec true", "--jobs 257 --exec true", "--exec true --ack completed",
		"--ack no-word", "--exec true --timeout -1s", "--exec true --reply --reply-type="} {
		r := runRefused(t, append([]string{"listen"}, strings.Fields(args)...), []string{"RELAY_URL=http://127.0.0.1:1", "RELAY_KEY=mk_x"})
		if r.wantCode(t, 2, "Try: relay listen --help"); r.out != "" {
			t.Errorf("%s: %q", args, r.out)
		}
	}
}

func TestInboxAckDeliverWhoami(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	if r := does(t, p.asBob, "inbox").wantCode(t, 0, "0 pending\n"); r.out != "" {
		t.Errorf("%q", r.out)
	}
	var ids []string
	for i := range 5 {
		body := fmt.Sprintf(`{"to":"bob^talk","priority":%q,"payload":{"n":%d,"text":"a\u001b[31m\n"}}`, []string{"normal", "urgent"}[i%2], i)
		ids = append(ids, parse[record](t, p.ask(p.alice, "POST", "/api/v1/messages", body).want(t, http.StatusCreated)).MessageID)
	}
	r := does(t, p.asBob, "deliver", ids[0]).wantCode(t, 0)
	if r.out != ids[0]+"  delivered\n" {
		t.Errorf("%q", r.out)
	}
	if r = does(t, p.asBob, "ack", ids[1]).wantCode(t, 0); r.out != ids[1]+"  acknowledged  completed\n" || r.err != "" {
		t.Errorf("%q, %q", r.out, r.err)
	}
	does(t, p.asBob, "ack", ids[1]).wantCode(t, 0, "nothing has changed")
	does(t, p.asBob, "ack", ids[1], "failed").wantCode(t, 1, "already_acknowledged")
	does(t, p.asBob, "ack", ids[1], "no-word").wantCode(t, 2, "not a valid status")
	does(t, p.asAlice, "ack", ids[2]).wantCode(t, 1, "recipient_only")
	does(t, p.asAlice, "ack", "../../whoami").wantCode(t, 1, "404")
	out := parse[map[string]any](t, []byte(does(t, p.asBob, "ack", ids[2], "FAILED", "--detail", "no seats", "--json").wantCode(t, 0).out))
	if out["status"] != "failed" || out["state"] != "acknowledged" {
		t.Errorf("%v", out)
	}
	if m := p.record(p.alice, ids[2]); m.Ack == nil || m.Ack.Detail != "no seats" {
		t.Errorf("%+v", m)
	}

	r = does(t, p.asBob, "inbox").wantCode(t, 0, "3 pending: 2 normal, 1 urgent\n")
	lines := strings.Split(r.out, "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "MESSAGE") || !strings.Contains(lines[1], ids[0]) || !strings.Contains(lines[1], "delivered") ||
		!strings.Contains(lines[2], ids[3]) || strings.Contains(r.out, "\x1b") {
		t.Errorf("%s", r.out)
	}
	r = does(t, p.asBob, "inbox", "--json", "--limit", "2").wantCode(t, 0, "… and 1 more")
	lines = strings.Split(r.out, "\n")
	if len(lines) != 3 || parse[record](t, []byte(lines[1])).MessageID != ids[3] || !strings.Contains(lines[1], `"payload":{"n":3,`) {
		t.Errorf("%s", r.out)
	}
	if r = does(t, p.asBob, "inbox", "--count").wantCode(t, 0); r.out != "3\n" {
		t.Errorf("%q", r.out)
	}
	if in := parse[struct{ Pending int }](t, []byte(does(t, p.asBob, "inbox", "--count", "--json").out)); in.Pending != 3 {
		t.Errorf("%+v", in)
	}
	does(t, p.asBob, "inbox", "--limit", "0").wantCode(t, 2, "--limit")

	if r = does(t, p.asBob, "whoami").wantCode(t, 0); !strings.Contains(r.out, "bob^talk") || !strings.Contains(r.out, "required") || r.err != "" {
		t.Errorf("%q, %q", r.out, r.err)
	}
	who := parse[map[string]any](t, []byte(does(t, p.asBob, "whoami", "--json").wantCode(t, 0).out))
	if who["mecha_id"] != "bob^talk" || who["key_id"] != p.bob.KeyID {
		t.Errorf("%v", who)
	}
}

// Messages that relay restore has brought back are pending once more. A listener
// that ran all the while handles them again.
func TestListenHandlesAgainWhatTheRelayHasLost(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGINT")
	p := newPair(t)
	f := newFront(t, p.server)
	backup := filepath.Join(t.TempDir(), "backup.db")
	first := p.send(p.alice, "bob^talk", `{}`)
	mustRelay(t, "backup", backup, "--db", p.db)
	l := launchHere(t, []string{"listen", "--ack", "completed"}, p.bobEnv(f.url))
	for _, m := range []record{first, p.send(p.alice, "bob^talk", `{}`)} {
		l.await(l.stdout, m.MessageID)
		p.awaitStatus(m.MessageID, "completed")
	}
	p.end()
	mustRelay(t, "restore", backup, "--db", p.db, "--force")
	p.server = startServer(t, p.db, "--require-message-signature")
	f.leadTo(p.server)
	l.await(l.stdout, first.MessageID+"(?s:.*)"+first.MessageID)
	p.awaitStatus(first.MessageID, "completed")
	if got := l.interrupt().messages(); len(got) != 3 {
		t.Errorf("%+v", got)
	}
}

// A listener that waits because it cannot ack says why.
func TestListenSaysThatItCannotAck(t *testing.T) {
	tool(t, "sh")
	t.Parallel()
	p := newPairWithProcess(t)
	f := newFront(t, p.server)
	dir := t.TempDir()
	l := launchHere(t, []string{"listen", "--exec", `echo begun; ` + until(`test -e '`+dir+`/go'`)}, p.bobEnv(f.url))
	m := p.send(p.alice, "bob^talk", `{}`)
	l.await(l.stdout, "begun")
	p.kill()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.await(l.stderr, m.MessageID+" is not acknowledged yet")
	p.server = startServer(t, p.db)
	f.leadTo(p.server)
	p.awaitStatus(m.MessageID, "completed")
}
