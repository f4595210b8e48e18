package cmd_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSend(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	payload := `{ "b": 1.50,  "a": "für Bob" }`
	in := filepath.Join(t.TempDir(), "payload.json")
	if err := os.WriteFile(in, []byte("\n"+payload+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for how, c := range map[string]struct{ args, stdin string }{
		"argument": {payload, ""}, "file": {"@" + in, ""}, "dash": {"-", payload + "\n"}, "stdin": {"", payload},
	} {
		args := []string{"send", "bob^talk", c.args}
		if c.args == "" {
			args = args[:2]
		}
		r := run(t, args, p.asAlice, c.stdin).wantCode(t, 0)
		id := strings.TrimSuffix(r.out, "\n")
		if r.err != "" || !strings.HasPrefix(id, "msg_") {
			t.Errorf("%s: %q, %q", how, r.out, r.err)
		}
		if got := string(p.ask(p.bob, "GET", "/api/v1/messages/"+id+"/payload", "").want(t, 200)); got != payload {
			t.Errorf("%s: the payload is %q", how, got)
		}
	}

	r := does(t, p.asAlice, "send", "bob^talk", `{}`, "--json", "--type", "note", "--priority", "high", "--conversation", "trip-17",
		"--correlation-id", "c 1", "--ttl", "1h").wantCode(t, 0)
	body := parse[map[string]any](t, []byte(r.out))
	if len(body) != 4 || body["conversation_id"] != "trip-17" || body["created_at"] == "" || strings.Count(r.out, "\n") != 1 {
		t.Errorf("%s", r.out)
	}
	m := p.record(p.bob, body["message_id"].(string))
	if m.MessageType != "note" || m.Priority != "high" || m.CorrelationID != "c 1" || m.ExpiresAt == "" || !m.Signed {
		t.Errorf("%+v", m)
	}
}

func TestWhatCannotBeSentIsSaidPlainly(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for _, c := range []struct {
		code  int
		says  string
		stdin string
		args  []string
	}{
		{2, "address", "", []string{"bob", `{}`}},
		{2, "must be a JSON object", "", []string{"bob^talk", `[1]`}},
		{2, "must be a JSON object", "", []string{"bob^talk", `"hello"`}},
		{2, "not valid JSON", "", []string{"bob^talk", `{"a":1,}`}},
		{2, "not valid JSON", "", []string{"bob^talk", `{} {}`}},
		{2, "empty", "", []string{"bob^talk"}},
		{2, "empty", " \n", []string{"bob^talk", "-"}},
		{2, "cannot be combined", "", []string{"bob^talk", `{}`, "--wait-ack", "1s", "--wait-reply", "1s"}},
		{2, "--no-ack", "", []string{"bob^talk", `{}`, "--no-ack"}},
		{2, "whole seconds", "", []string{"bob^talk", `{}`, "--ttl", "1500ms"}},
		{2, "negative", "", []string{"bob^talk", `{}`, "--wait-ack", "-1s"}},
		{1, "nothing.json", "", []string{"bob^talk", "@nothing.json"}},
		{1, "did you mean bob^talk?", "", []string{"bbo^talk", `{}`}},
		{1, "conversation_not_found", "", []string{"bob^talk", `{}`, "--conversation", "conv_00000000000000000000000000"}},
	} {
		r := run(t, append([]string{"send"}, c.args...), p.asAlice, c.stdin).wantCode(t, c.code, c.says)
		if r.out != "" || strings.Contains(r.err, "not known") {
			t.Errorf("%v: %q, %q", c.args, r.out, r.err)
		}
	}
	if h := p.history(p.bob, ""); len(h) != 0 {
		t.Errorf("bob has %+v", h)
	}
}

func TestSendIsSentOnceThoughAnswersGetLost(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	f := newFront(t, p.server)
	f.loseAnswers(2)
	r := does(t, p.aliceEnv(f.url), "send", "bob^talk", `{"n":1}`).wantCode(t, 0)
	h := p.history(p.bob, "")
	if f.answersLost() != 2 || len(h) != 1 || h[0].MessageID+"\n" != r.out {
		t.Errorf("%d answers were lost; sent %q; bob has %+v", f.answersLost(), r.out, h)
	}

	// send says that the outcome is not known, and how to find out.
	f.loseAnswers(1)
	r = does(t, p.aliceEnv(f.url), "send", "bob^talk", `{"n":2}`, "--retry", "0s").wantCode(t, 1, "not known", "--idempotency-key '")
	_, rest, _ := strings.Cut(r.err, "--idempotency-key '")
	key, _, _ := strings.Cut(rest, "'")
	again := does(t, p.aliceEnv(f.url), "send", "bob^talk", `{"n":2}`, "--idempotency-key", key).wantCode(t, 0)
	if h := p.history(p.bob, ""); r.out != "" || len(h) != 2 || h[1].MessageID+"\n" != again.out {
		t.Errorf("%q, %q; bob has %+v", r.out, again.out, h)
	}
	does(t, p.asAlice, "send", "bob^talk", `{"n":3}`, "--idempotency-key", key).wantCode(t, 1, "idempotency_key_reused")

	// If the message certainly was not sent, the outcome is not called unknown.
	r = does(t, p.aliceEnv("http://127.0.0.1:1"), "send", "bob^talk", `{}`, "--retry", "0s").wantCode(t, 1, "is the relay running")
	if strings.Contains(r.err, "not known") {
		t.Error(r.err)
	}
}

func TestSendWaitsForARelayThatIsAway(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no kill -9")
	p := newPairWithProcess(t)
	f := newFront(t, p.server)
	p.kill()
	attempts := newOutput() // the front hears each
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(attempts, "attempt")
			conn.Close()
		}
	}()
	f.leadTo(&server{url: "http://" + l.Addr().String()})
	send := launchHere(t, []string{"send", "bob^talk", `{}`, "--retry", "1m"}, p.aliceEnv(f.url))
	send.await(attempts, "attempt\nattempt\n") // it is trying
	p.server = startServer(t, p.db)
	f.leadTo(p.server)
	if code := send.wait(); code != 0 {
		t.Fatalf("exit %d: %s", code, send.stderr)
	}
	l.Close()
	if h := p.history(p.bob, ""); len(h) != 1 {
		t.Errorf("bob has %+v", h)
	}
}

func TestSendWaitsForTheFinalAck(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no kill -9")
	p := newPairWithProcess(t)
	f := newFront(t, p.server)
	lines := 1 // of stdout
	wait := func(args ...string) (*server, string) {
		t.Helper()
		s := launchHere(t, append([]string{"send", "bob^talk", `{}`, "--wait-ack", "1m"}, args...), p.aliceEnv(f.url))
		return s, s.await(s.stdout, `(msg_\w+)`)[1]
	}
	want := func(s *server, code int, says string) {
		t.Helper()
		if got := s.wait(); got != code || !strings.Contains(s.stderr.String(), says) {
			t.Errorf("exit %d, want %d with %q: %s", got, code, says, s.stderr)
		}
		if strings.Count(s.stdout.String(), "\n") != lines {
			t.Errorf("stdout: %s", s.stdout)
		}
		lines = 1
	}
	s, id := wait()
	p.ackAs(p.bob, id, "processing", "")
	p.ackAs(p.bob, id, "seen", "") // acknowledges, but is not final
	p.ackAs(p.bob, id, "completed", "")
	want(s, 0, "completed")
	s, id = wait()
	p.ackAs(p.bob, id, "failed", "no seats left")
	want(s, 1, "failed: no seats left")
	s, id = wait("--json")
	body := parse[record](t, []byte(s.stdout.String()))
	p.ackAs(p.bob, id, "rejected", "")
	lines = 2 // the record follows
	want(s, 1, "rejected")
	_, second, _ := strings.Cut(s.stdout.String(), "\n")
	if r := parse[record](t, []byte(second)); body.MessageID != id || r.MessageID != id || r.Ack.Status != "rejected" {
		t.Errorf("%v, %+v", body, r)
	}
	s, _ = wait("--ttl", "1s")
	want(s, 1, "expired")

	// It keeps waiting when the relay is killed and started again.
	s, id = wait()
	p.kill()
	p.server = startServer(t, p.db)
	f.leadTo(p.server)
	p.ackAs(p.bob, id, "completed", "")
	want(s, 0, "completed")

	// The ack may have come before: the same command again finds it.
	does(t, p.asAliceAt(), "send", "bob^talk", `{"n":1}`, "--wait-ack", "1ms", "--idempotency-key", "k").wantCode(t, 1, "no final ack within 1ms")
	last := p.history(p.bob, "")
	p.ackAs(p.bob, last[len(last)-1].MessageID, "completed", "")
	does(t, p.asAliceAt(), "send", "bob^talk", `{"n":1}`, "--wait-ack", "1m", "--idempotency-key", "k").wantCode(t, 0)

	if s, id = wait(); s.signal(os.Interrupt) != 1 || !strings.Contains(s.stderr.String(), "interrupted. "+id) {
		t.Errorf("%s", s.stderr)
	}
}

// asAliceAt returns her environment for where the relay is now.
func (p *pair) asAliceAt() []string { return p.aliceEnv(p.url) }

func TestSendWaitsForTheReply(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no kill -9")
	p := newPairWithProcess(t)
	f := newFront(t, p.server)
	wait := func(args ...string) (*server, fullRecord) {
		t.Helper()
		s := launchHere(t, append([]string{"send", "bob^talk", `{"q":1}`, "--wait-reply", "1m"}, args...), p.aliceEnv(f.url))
		return s, p.record(p.alice, s.await(s.stderr, `sent (msg_\w+)\n`)[1])
	}
	reply := func(m fullRecord, correlation, payload string) string {
		t.Helper()
		body := fmt.Sprintf(`{"to":"alice^talk","conversation_id":%q,"correlation_id":%q,"payload":%s}`, m.ConversationID, correlation, payload)
		return parse[record](t, p.ask(p.bob, "POST", "/api/v1/messages", body).want(t, 201)).MessageID
	}
	want := func(s *server, code int, out, says string) {
		t.Helper()
		if got := s.wait(); got != code || s.stdout.String() != out || !strings.Contains(s.stderr.String(), says) {
			t.Errorf("exit %d with %q, want %d with %q and %q: %s", got, s.stdout, code, out, says, s.stderr)
		}
	}
	// A worker that knows nothing of correlation: the conversation is enough.
	s, m := wait()
	p.send(p.bob, "alice^talk", `{"unrelated":true}`)
	id := reply(m, "", `{ "a": 1.50 }`)
	want(s, 0, "{ \"a\": 1.50 }\n", "")
	if got := p.record(p.alice, id); got.status() != "completed" {
		t.Errorf("the answer is %+v", got)
	}
	s, m = wait("--no-ack")
	id = reply(m, m.CorrelationID, `{}`)
	want(s, 0, "{}\n", "")
	if got := p.record(p.alice, id); got.State != "queued" {
		t.Errorf("the answer is %+v", got)
	}
	// In a conversation that continues, only the correlation_id tells answers apart.
	s, m = wait("--conversation", "trip-17", "--correlation-id", "q2", "--json")
	reply(m, "", `{"a":0}`)
	reply(m, "q1", `{"a":1}`)
	id = reply(m, "q2", "{\"a\":\n2}")
	s.wait()
	if e := parse[record](t, []byte(s.stdout.String())); e.MessageID != id || string(e.Payload) != `{"a":2}` || strings.Count(s.stdout.String(), "\n") != 1 {
		t.Errorf("%s", s.stdout)
	}
	// A failure ends the wait, a completed ack does not.
	s, m = wait()
	p.ackAs(p.bob, m.MessageID, "failed", "I do not know")
	want(s, 1, "", "failed: I do not know")
	s, m = wait()
	p.ackAs(p.bob, m.MessageID, "completed", "")
	reply(m, m.CorrelationID, `{}`)
	want(s, 0, "{}\n", "")

	// The relay is killed and started again, and the answer comes meanwhile.
	s, m = wait("--idempotency-key", "k")
	p.kill()
	p.server = startServer(t, p.db)
	reply(m, m.CorrelationID, `{"after":"the kill"}`)
	f.leadTo(p.server)
	want(s, 0, "{\"after\":\"the kill\"}\n", "")
	// The same command again finds the same message, and its answer.
	s, m2 := wait("--idempotency-key", "k")
	want(s, 0, "{\"after\":\"the kill\"}\n", "")
	if m2.MessageID != m.MessageID {
		t.Errorf("%s was sent again as %s", m.MessageID, m2.MessageID)
	}
	var late result
	eventually(t, patience, "the relay says in time that it has the message", func() bool { // in 2 s
		late = does(t, p.asAliceAt(), "send", "bob^talk", `{}`, "--wait-reply", "10ms", "--idempotency-key", "late")
		return !strings.Contains(late.err, "is not known")
	})
	late.wantCode(t, 1, "no answer to msg_", "within 10ms")
}
