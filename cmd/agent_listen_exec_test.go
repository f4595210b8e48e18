package cmd_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"relay/db/scratch"
)

// until makes a shell command that waits for a condition, for a limited time:
// nobody stops it if the test fails.
func until(condition string) string {
	return `{ n=0; until ` + condition + ` || test $n -ge 600; do n=$((n+1)); sleep 0.05; done; }`
}

// A newcomer's two terminals: one answers questions, the other asks.
func TestTwoTerminals(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "sed")
	p := newPair(t)
	p.listen("--exec", `sed 's/question/answer to/'`, "--reply")
	r := does(t, p.asAlice, "send", "bob^talk", `{"question":"how are you?"}`, "--wait-reply", "1m").wantCode(t, 0, "sent msg_")
	if r.out != `{"answer to":"how are you?"}`+"\n" {
		t.Errorf("%q", r.out)
	}
	id := strings.Fields(r.err)[1]
	p.awaitStatus(id, "completed")
	for _, m := range p.history(p.alice, "direction=in") {
		if m.State != "acknowledged" {
			t.Errorf("the answer is %+v", m)
		}
	}
	r = does(t, p.asAlice, "send", "bob^talk", `{"question":1}`, "--wait-ack", "1m").wantCode(t, 0, "completed")
}

func TestListenRunsACommand(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "cat", "env", "seq")
	p := newPair(t)
	dir := t.TempDir()
	l := p.listen("--exec", `cat > '`+dir+`'/$RELAY_MESSAGE_ID; env > '`+dir+`/env'; echo out; echo "first line" >&2; echo "no seats left" >&2; echo >&2; test "$RELAY_MESSAGE_TYPE" = note`)
	payload := `{ "b": 1.50,  "a": "für Bob" }`
	body := `{"to":"bob^talk","message_type":"note","priority":"high","conversation_id":"trip-17","correlation_id":"a\u0000b $(x)","payload":` + payload + `}`
	m := parse[record](t, p.ask(p.alice, "POST", "/api/v1/messages", body).want(t, 201))
	p.awaitStatus(m.MessageID, "completed")
	if got, err := os.ReadFile(filepath.Join(dir, m.MessageID)); string(got) != payload {
		t.Errorf("stdin was %q, %v", got, err)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ID=" + m.MessageID, "CONVERSATION_ID=trip-17", "FROM=alice^talk", "TO=bob^talk", "TYPE=note", "PRIORITY=high",
		"CORRELATION_ID=a\uFFFDb $(x)", "CREATED_AT=" + m.CreatedAt.Format("2006-01-02T15:04:05.000Z")} {
		if !strings.Contains("\n"+string(env), "\nRELAY_MESSAGE_"+want+"\n") {
			t.Errorf("no %s in\n%s", want, env)
		}
	}
	// Any other exit code is a failure, and the sender is told why.
	failed := p.send(p.alice, "bob^talk", `{}`)
	if got := p.awaitStatus(failed.MessageID, "failed"); got.Ack.Detail != "no seats left" {
		t.Errorf("%+v", got.Ack)
	}
	l.interrupt()
	if l.stdout.String() != "out\nout\n" || !strings.Contains(l.stderr.String(), "first line\n") {
		t.Errorf("stdout %q, stderr %q", l.stdout, l.stderr)
	}

	// With nothing on stderr, the detail is the exit code. A long line is cut, and control characters are replaced.
	for command, want := range map[string]string{
		"exit 3":     "exit status 3",
		"kill -9 $$": "signal: killed",
		`printf '\033[1m' >&2; printf 'é%.0s' $(seq 1500) >&2; exit 1`: "é…",
	} {
		m := p.send(p.alice, "bob^talk", `{}`)
		l := p.listen("--exec", command)
		got := p.awaitStatus(m.MessageID, "failed").Ack.Detail
		if !strings.HasSuffix(got, want) || len(got) > 1024 || strings.Contains(got, "\x1b") {
			t.Errorf("%s: detail %q", command, got)
		}
		l.interrupt()
	}
}

// A command may use relay itself, which must not take the envelope for its flags.
func TestACommandMaySendMessages(t *testing.T) {
	t.Parallel()
	tool(t, "sh")
	p := newPair(t)
	eachCommand(t, nil, func(_ []string, help string) {
		if strings.Contains(help, "--message-") {
			t.Errorf("a flag --message-… would be set by RELAY_MESSAGE_…:\n%s", help)
		}
	})
	p.listenAsProcess("--exec", `'`+binary+`' send "$RELAY_MESSAGE_FROM" - --conversation "$RELAY_MESSAGE_CONVERSATION_ID"`)
	body := `{"to":"bob^talk","message_type":"note","priority":"high","correlation_id":"c","payload":{"n":1}}`
	m := parse[record](t, p.ask(p.alice, "POST", "/api/v1/messages", body).want(t, 201))
	p.awaitStatus(m.MessageID, "completed")
	h := p.history(p.alice, "direction=in&include=payload")
	if len(h) != 1 || h[0].ConversationID != m.ConversationID || string(h[0].Payload) != `{"n":1}` {
		t.Fatalf("%+v", h)
	}
	if got := p.record(p.alice, h[0].MessageID); got.Priority != "normal" || got.MessageType != "message" || got.CorrelationID != "" {
		t.Errorf("%+v", got)
	}
}

func TestListenReplies(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "cat")
	p := newPair(t)
	l := p.listen("--exec", `cat; test ! "$RELAY_MESSAGE_TYPE" = bad`, "--reply")
	ask := func(kind, payload string) record {
		t.Helper()
		body := fmt.Sprintf(`{"to":"bob^talk","message_type":%q,"correlation_id":"c 1","payload":%s}`, kind, payload)
		return parse[record](t, p.ask(p.alice, "POST", "/api/v1/messages", body).want(t, 201))
	}
	m := ask("question", `{ "n": 1.50 }`)
	p.awaitStatus(m.MessageID, "completed")
	h := p.history(p.alice, "direction=in&include=payload")
	if len(h) != 1 || h[0].ConversationID != m.ConversationID || string(h[0].Payload) != `{ "n": 1.50 }` {
		t.Fatalf("%+v", h)
	}
	if got := p.record(p.alice, h[0].MessageID); got.MessageType != "reply" || got.CorrelationID != "c 1" {
		t.Errorf("%+v", got)
	}
	// An answer is not answered, and neither is a message that failed.
	p.awaitStatus(ask("reply", `{}`).MessageID, "completed")
	p.awaitStatus(ask("bad", `{}`).MessageID, "failed")
	l.interrupt()
	if l.stdout.String() != "" {
		t.Errorf("stdout %q", l.stdout)
	}
	for command, want := range map[string]string{
		"true":                      "printed no answer",
		"echo hello":                "one JSON object",
		"echo '[1]'":                "one JSON object",
		"echo '{} {}'":              "one JSON object",
		`echo '{"a":"\ud800"}'`:     "refused",
		"head -c 1100000 /dev/zero": "more than 1048576 bytes",
	} {
		m := ask("question", `{}`)
		l := p.listen("--exec", command, "--reply")
		if got := p.awaitStatus(m.MessageID, "failed").Ack.Detail; !strings.Contains(got, want) {
			t.Errorf("%s: detail %q", command, got)
		}
		l.interrupt()
	}
	if h := p.history(p.alice, "direction=in"); len(h) != 1 {
		t.Errorf("%+v", h)
	}

	// A listener that is killed between the answer and the ack gives the same answer once, and a different one too.
	for before, want := range map[string]int{`{"n":1}`: 2, `{"n":2}`: 1} {
		m := ask("question", `{"n":2}`)
		body := fmt.Sprintf(`{"to":"alice^talk","message_type":"reply","conversation_id":%q,"correlation_id":"c 1","in_reply_to":%q,"payload":%s}`, m.ConversationID, m.MessageID, before)
		sum := sha256.Sum256([]byte(body))
		p.ask(p.bob, "POST", "/api/v1/messages", body, "Idempotency-Key", fmt.Sprintf("reply-%s-%x-1", m.MessageID, sum[:8])).want(t, 201)
		l := p.listen("--exec", "cat", "--reply")
		p.awaitStatus(m.MessageID, "completed")
		l.interrupt()
		if h := p.history(p.alice, "direction=in&conversation_id="+m.ConversationID); len(h) != want {
			t.Errorf("after %s: %+v", before, h)
		}
	}
}

func TestListenRunsSeveralAtOnce(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "sleep")
	p := newPair(t)
	dir := t.TempDir()
	// Each command waits until all three have begun.
	meet := `touch '` + dir + `'/$RELAY_MESSAGE_ID; ` + until(`test $(ls '`+dir+`' | wc -l) -ge 3`)
	var ids []string
	for range 3 {
		ids = append(ids, p.send(p.alice, "bob^talk", `{}`).MessageID)
	}
	l := p.listen("--exec", meet, "--jobs", "3")
	for _, id := range ids {
		p.awaitStatus(id, "completed")
	}
	l.interrupt()
	// With three jobs, four commands never run at once: the fourth begins when one has ended.
	log := filepath.Join(dir, "log")
	for range 12 {
		ids = append(ids, p.send(p.alice, "bob^talk", `{}`).MessageID)
	}
	l = p.listen("--exec", `echo + >> '`+log+`'; sleep 0.01; echo - >> '`+log+`'`, "--jobs", "3")
	p.awaitStatus(ids[len(ids)-1], "completed")
	l.interrupt()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	running := 0
	for line := range strings.Lines(string(text)) {
		running += map[string]int{"+\n": 1, "-\n": -1}[line]
		if running > 3 {
			t.Errorf("%d at once:\n%s", running, text)
		}
	}
	if strings.Count(string(text), "-") != 12 {
		t.Errorf("%s", text)
	}
}

func TestACommandThatTakesTooLongIsKilled(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "sleep")
	p := newPair(t)
	m := p.send(p.alice, "bob^talk", `{}`)
	l := p.listen("--exec", "sleep 60; true", "--timeout", "200ms")
	if got := p.awaitStatus(m.MessageID, "failed").Ack.Detail; got != "killed after 200ms" {
		t.Errorf("%q", got)
	}
	l.interrupt()
}

func TestListenEndsWhatItHasBegun(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "sleep")
	p := newPair(t)
	dir := t.TempDir()
	m := p.send(p.alice, "bob^talk", `{}`)
	next := p.send(p.alice, "bob^talk", `{}`)
	l := p.listenAsProcess("--exec", `echo begun; `+until(`test -e '`+dir+`/go'`))
	l.await(l.stdout, "begun")
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the socket is closed", func() bool {
		body := p.ask(p.alice, "GET", "/api/v1/mecha/bob%5Etalk/profile", "").want(t, 200)
		return !parse[struct{ Online bool }](t, body).Online
	})
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := l.wait(); code != 0 {
		t.Errorf("exit %d: %s", code, l.stderr)
	}
	if a, b := p.record(p.bob, m.MessageID), p.record(p.bob, next.MessageID); a.status() != "completed" || b.State != "queued" {
		t.Errorf("%+v, %+v", a, b)
	}

	// The second signal kills the command, and the message stays pending.
	l = p.listenAsProcess("--exec", "echo begun; sleep 60; true")
	l.await(l.stdout, "begun")
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.wantEndedBySignals()
	if b := p.record(p.bob, next.MessageID); b.State != "queued" {
		t.Errorf("%+v", b)
	}
}

// wantEndedBySignals signals a listener until it ends, and expects it to say
// that it left work behind. The first signal may take a while to be heard.
func (s *server) wantEndedBySignals() {
	s.t.Helper()
	eventually(s.t, patience, "it ends", func() bool {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.exited:
			return true
		default:
			return false
		}
	})
	// -1: one signal more came when the listener had said its last word, and ended it.
	if code := s.wait(); code != 1 && code != -1 || !strings.Contains(s.stderr.String(), "stay pending") {
		s.t.Errorf("exit %d: %s", code, s.stderr)
	}
}

// A message that is in hand when the connection is lost is redelivered with the next one.
func TestACommandThatRunsIsNotRunAgainByAReconnect(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "sleep")
	p := newPairWithProcess(t)
	f := newFront(t, p.server)
	dir := t.TempDir()
	l := launchHere(t, []string{"listen", "--jobs", "2", "--exec",
		`echo $RELAY_MESSAGE_ID; test ! "$RELAY_MESSAGE_TYPE" = slow || ` + until(`test -e '`+dir+`/go'`)}, p.bobEnv(f.url))
	l.await(l.stderr, "listening as")
	slow := parse[record](t, p.ask(p.alice, "POST", "/api/v1/messages", `{"to":"bob^talk","message_type":"slow","payload":{}}`).want(t, 201))
	l.await(l.stdout, slow.MessageID)
	p.kill()
	p.server = startServer(t, p.db)
	f.leadTo(p.server)
	quick := p.send(p.alice, "bob^talk", `{}`)
	p.awaitStatus(quick.MessageID, "completed")
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.awaitStatus(slow.MessageID, "completed")
	if l.interrupt(); l.stdout.String() != slow.MessageID+"\n"+quick.MessageID+"\n" {
		t.Errorf("it ran %s", l.stdout)
	}
}

// The output of the client commands never has a secret in it, whatever goes wrong.
func TestClientCommandsRepeatNoSecret(t *testing.T) {
	notShort(t)
	t.Parallel()
	p := newPair(t)
	secret := issue(t, p.db, "alice^talk", "--signing-secret")[0]
	typo := p.alice.Key[:len(p.alice.Key)-1] + "x"
	if typo == p.alice.Key {
		typo = p.alice.Key[:len(p.alice.Key)-1] + "y"
	}
	for i, key := range []string{secret.Key, typo, "a b " + p.alice.Key, p.alice.Key + "\n" + *secret.Secret} {
		for j, url := range []string{p.url, "http://127.0.0.1:1", "http://[::1", key, "http://me:hunter2@127.0.0.1:1", "http://me:hunter2@[::1"} {
			for k, command := range []string{"send bob^talk {} --retry 0s", "send bob^talk {} --retry 0s --wait-ack 1ms", "listen --timeout 1s", "inbox", "ack msg_x", "deliver msg_x", "whoami",
				"listen --exec true --state none"} {
				if !scratch.Long(t) && (i+j+k)%4 != 0 {
					continue // each command meets each key, and each address
				}
				if strings.HasPrefix(command, "listen") && (strings.HasSuffix(url, "127.0.0.1:1") || key == secret.Key) {
					continue // it would continue listening, or trying
				}
				r := run(t, strings.Fields(command), []string{"RELAY_URL=" + url, "RELAY_KEY=" + key, "RELAY_SIGNING_SECRET=" + *secret.Secret, "XDG_STATE_HOME=" + t.TempDir()}, "")
				for _, s := range []string{p.alice.Key, typo, secret.Key, *secret.Secret, "hunter2"} {
					if strings.Contains(r.out+r.err, s) {
						t.Errorf("relay %s at %s repeats a secret: %s%s", command, url, r.out, r.err)
					}
				}
				if r.code == 0 && (key != secret.Key || url != p.url) {
					t.Errorf("relay %s at %s succeeded with a bad key or address", command, url)
				}
			}
		}
	}
}
