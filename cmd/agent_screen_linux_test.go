package cmd_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// relay curl passes on the bytes of an answer, but indents JSON for people.
func TestCurlIndentsOnATerminalOnly(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	payload := `{ "n": 1.50,  "a": [1,2] }`
	var sent record
	if err := json.Unmarshal([]byte(run(t, []string{"send", "bob^x", payload, "--json"}, c.env, "").wantCode(t, 0).out), &sent); err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/messages/" + sent.MessageID + "/payload"
	if out := run(t, []string{"curl", "GET", path}, c.env, "").wantCode(t, 0).out; out != payload {
		t.Errorf("elsewhere: %q", out)
	}
	if out := onTerminal(t, c.env, "curl", "GET", path).wantCode(t, 0).out; out != "{\n  \"n\": 1.50,\n  \"a\": [\n    1,\n    2\n  ]\n}\n" {
		t.Errorf("on a terminal: %q", out)
	}
	if out := onTerminal(t, c.env, "curl", "GET", path, "--json").wantCode(t, 0).out; out != payload+"\n" {
		t.Errorf("on a terminal with --json: %q", out)
	}
	if out := onTerminal(t, c.env, "curl", "GET", "/docs/nope").wantCode(t, 1, "404").out; !strings.HasPrefix(out, "{\n  \"type\"") {
		t.Errorf("a refusal: %q", out)
	}
}

// People read on a terminal who sent what and when; programs get lines of JSON.
func TestListenOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var sent []record
	for _, body := range []string{`{"to":"bob^talk","message_type":"question","priority":"high","conversation_id":"trip","payload":{"text":"two\nlines"}}`,
		`{"to":"bob^talk","conversation_id":"trip","payload":{"n":1.50}}`} {
		sent = append(sent, parse[record](t, p.ask(p.alice, "POST", "/api/v1/messages", body).want(t, http.StatusCreated)))
	}
	listen := func(until string, args ...string) string {
		t.Helper()
		l := launchOnTerminal(t, exec.Command(binary, append([]string{"listen", "--state", "none"}, args...)...), append(p.asBob, "NO_COLOR=1"))
		l.await(l.stdout, until)
		l.signal(syscall.SIGINT)
		return l.stdout.String()
	}
	at := func(i int) string { return sent[i].CreatedAt.Format("2006-01-02 15:04:05.000Z") }
	want := at(0) + "  alice^talk  question, high  trip  " + sent[0].MessageID + "\n    two\n    lines\n" +
		at(1) + "  alice^talk  message  trip  " + sent[1].MessageID + "\n    {\n      \"n\": 1.50\n    }\n"
	if got := listen(`1\.50\n    }\n`); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for i, m := range lines[record](t, listen(`1\.50.*\n`, "--json")) {
		if m.MessageID != sent[i].MessageID {
			t.Errorf("%+v", m)
		}
	}
}

func TestJSONOfARelayOnATerminalKeepsItsValue(t *testing.T) {
	t.Parallel()
	newCast(t).wantSameJSON("inbox --json", "search zzyzx --json", "curl GET /api/v1/messages/$ID/payload", "curl GET /api/v1/mecha/bob^x/messages?include=payload")
}
