package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/scratch"
)

func TestClientsOfOtherLanguagesArePrinted(t *testing.T) {
	t.Parallel()
	version := parse[map[string]string](t, []byte(mustRelay(t, "version", "--json")))["version"]
	text, example := mustRelay(t, "client", "python"), mustRelay(t, "client", "python", "--example")
	if !strings.Contains(text, "\n__version__ = \""+version+"\"\n") || strings.Contains(text, "unstamped") || !strings.Contains(example, "SyncRelay") {
		t.Errorf("version %s:\n%.3000s\n%s", version, text, example)
	}
	printed := parse[map[string]string](t, []byte(mustRelay(t, "client", "python", "--json")))
	if printed["file"] != "relay_client.py" || printed["version"] != version || printed["text"] != text {
		t.Errorf("%.300v", printed)
	}
	if n := strings.Count(example, "\n"); n > 40 {
		t.Errorf("the example has %d lines", n)
	}
	runRelay(t, "client", "pithon").wantCode(t, 2, `did you mean "client python"?`)
	runRelay(t, "client", "python", "3").wantCode(t, 2, "no arguments")
}

// python is a folder with the printed client and its example, and how to run programs in it.
type python struct {
	t           *testing.T
	dir         string
	interpreter string
}

func newPython(t *testing.T) python {
	t.Helper()
	p := python{t, t.TempDir(), scratch.Python(t)}
	for _, f := range []struct{ name, text string }{
		{"relay_client.py", mustRelay(t, "client", "python")}, {"example.py", mustRelay(t, "client", "python", "--example")},
	} {
		if err := os.WriteFile(filepath.Join(p.dir, f.name), []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// command is a program of the folder or of testdata. Warnings are errors.
func (p python) command(program string, args ...string) *exec.Cmd {
	p.t.Helper()
	file := filepath.Join(p.dir, program)
	if _, err := os.Stat(file); err != nil {
		if file, err = filepath.Abs(filepath.Join("testdata/client", program)); err != nil {
			p.t.Fatal(err)
		}
	}
	flags := []string{"-B", "-W", "error"}
	if scratch.Long(p.t) {
		flags = append(flags, "-X", "dev") // asyncio then looks at itself, which takes half of the time
	}
	return exec.Command(p.interpreter, append(append(flags, file), args...)...)
}

func (p python) env(url string, a agent, more ...string) []string {
	return append([]string{"PYTHONPATH=" + p.dir, "RELAY_URL=" + url, "RELAY_KEY=" + a.Key}, more...)
}

var pythonComplains = regexp.MustCompile(`Warning|Exception ignored|never awaited|never retrieved`)

// pythons are the interpreters that the client must run with, as far as they are there: the usual one and
// the oldest; in the long form the newest, too, and with RELAY_TEST_FULL all between them.
func pythons(t testing.TB) []string {
	found, versions := []string{scratch.Python(t)}, []string{"3.9", "3.14", "3.13", "3.12", "3.10"}
	home, _ := os.UserHomeDir()
	switch {
	case !scratch.Long(t):
		versions = versions[:1]
	case !full():
		versions = versions[:2]
	}
	for _, v := range versions {
		if kept, _ := filepath.Glob(filepath.Join(home, ".pyenv", "versions", v+".*", "bin", "python3")); len(kept) > 0 {
			found = append(found, kept[0])
		} else if exec.Command("python"+v, "--version").Run() == nil {
			found = append(found, "python"+v)
		}
	}
	return found
}

// The file is read by Python 3.9: by its grammar, and by such a Python where there is one.
func TestThePythonClientIsForPython39(t *testing.T) {
	t.Parallel()
	p := newPython(t)
	const program = `
import ast, sys
for file in sys.argv[1:]:
    with open(file, encoding="utf-8") as f:
        tree = ast.parse(f.read(), file, feature_version=(3, 9))
    known = getattr(sys, "stdlib_module_names", None)
    for node in ast.walk(tree):
        for name in [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []:
            assert known is None or name.split(".")[0] in known or name == "relay_client", name
import relay_client, inspect
for kind in (relay_client.SyncRelay, relay_client.SyncMessage, relay_client.SyncListener):
    for name, f in inspect.getmembers(kind, inspect.isfunction):
        assert name[0] == "_" or f.__doc__, name
        twin = getattr(getattr(relay_client, kind.__name__[len("Sync"):]), {"close": "aclose"}.get(name, name) if kind is relay_client.SyncListener else name, None)
        if name[0] != "_":
            assert list(inspect.signature(f).parameters) == list(inspect.signature(twin).parameters), name
`
	for _, interpreter := range pythons(t) {
		c := exec.Command(interpreter, "-B", "-W", "error", "-c", program, "relay_client.py", "example.py")
		c.Dir = p.dir
		if r := finish(t, c, nil, "").wantCode(t, 0); r.err != "" {
			t.Errorf("%s: %s", interpreter, r.err)
		}
	}
}

func TestThePythonClient(t *testing.T) {
	notShort(t)
	t.Parallel()
	interpreters := pythons(t)
	parts := [][]string{{"Signing", "Calls", "Listening"}}
	if scratch.Long(t) {
		parts = append(parts, []string{"Asynchronous"}, []string{"EveryLoop"}, []string{"Patient", "LongBodies", "Stalled"})
	} else {
		interpreters = interpreters[:1]
	}
	for i, interpreter := range interpreters {
		t.Run(fmt.Sprint("interpreter ", i), func(t *testing.T) { // one after the other
			for _, classes := range parts {
				t.Run(classes[0], func(t *testing.T) {
					t.Parallel()
					checkPythonClient(t, interpreter, classes)
				})
			}
		})
	}
}

// checkPythonClient runs classes of check_client.py with a relay of their own.
func checkPythonClient(t *testing.T, interpreter string, classes []string) {
	p, db := newPython(t), tempDB(t)
	p.interpreter = interpreter
	var names []string
	for i := range 160 {
		names = append(names, "m"+string(rune('a'+i/8))+string(rune('a'+i%8))+"^py")
	}
	keys := slices.Concat(issue(t, db, names...), agents(t, mustRelay(t, "key", "create", "--json", "--db", db, "--signing-secret", "secret^py")), issue(t, db, "gone^py"))
	mustRelay(t, "key", "revoke", "--db", db, keys[len(keys)-1].KeyID)
	s := startServer(t, db, "--require-request-signature", "--rate-limit", "0")
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	env := p.env(s.url, keys[0], "KEYS="+string(text), "VECTOR="+signingVector(t), fmt.Sprint("MOMENTS=", rounds(t, 2, 60)))
	r := finish(t, p.command("check_client.py", classes...), env, "").wantCode(t, 0)
	if m := pythonComplains.FindString(r.err); m != "" || !strings.Contains(r.err, "\nOK") {
		t.Errorf("%s, %s in:\n%s", interpreter, m, r.err)
	}
}

// signingVector is the table of the page "signing", as JSON.
func signingVector(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../http/docs/signing.md")
	if err != nil {
		t.Fatal(err)
	}
	vector := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| ([a-z ]+?) +\\| `(.*)` +\\|$").FindAllStringSubmatch(string(page), -1) {
		vector[m[1]] = m[2]
	}
	text, err := json.Marshal(vector)
	if err != nil || vector["request signature"] == "" {
		t.Fatal(err, vector)
	}
	return string(text)
}

// A message is sent once, whatever happens to the requests.
func TestThePythonClientSendsOnceThroughTroubles(t *testing.T) {
	notQuick(t)
	notShort(t)
	t.Parallel()
	p, db := newPython(t), tempDB(t)
	keys := issue(t, db, "alice^py", "bob^py")
	s := startServer(t, db, "--require-message-signature")
	f := newTroubled(t, s, isSend, retryLater(429, "rate_limited"), retryLater(503, "overloaded"), lost(0), lost(20), lost(200), says(""),
		says("HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"), says("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n"), says("hello\r\n\r\n"), retryLater(500, "internal"))
	r := finish(t, p.command("receive_and_send.py", "send", keys[1].Address), p.env(f.url, keys[0]), "").wantCode(t, 0)
	f.want(t, 11)
	if h := s.history(keys[1], ""); len(h) != 1 || h[0].MessageID != strings.TrimSpace(r.out) || pythonComplains.MatchString(r.err) {
		t.Errorf("%d messages, and it prints %s\n%s", len(h), r.out, r.err)
	}
}

// notAFrame is in the names of troubles that are none of frames.
var notAFrame = regexp.MustCompile("cut|answer|headers|nothing at all|refusal|proxy|handshake|never")

// A frame that is against the rules, or cut, ends a connection with an error, and no listener: the next
// connection brings the message.
func TestThePythonClientOutlivesHostileSockets(t *testing.T) {
	notQuick(t)
	t.Parallel()
	p, db := newPython(t), tempDB(t)
	keys := issue(t, db, "alice^py")
	s := startServer(t, db, "--require-message-signature")
	type try struct {
		name     string
		troubles []trouble
		sockets  int
	}
	tries := []try{
		{"a proxy without sockets", always(says("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")), 1},
		{"a proxy that takes them for requests", always(says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")), 1},
		{"sockets that never work", always(frames(0x88, 0)), 3},
	}
	for name, broken := range brokenSockets() {
		tries = append(tries, try{name, []trouble{broken}, 2})
	}
	type mecha struct {
		URL   string `json:"url"`
		Key   string `json:"key"`
		agent agent
		front *troubled
	}
	mechas, addresses := map[string]mecha{}, []string{}
	for i := range tries {
		addresses = append(addresses, fmt.Sprintf("bob%d^py", i))
	}
	for i, bob := range issue(t, db, addresses...) {
		c := tries[i]
		f := newTroubled(t, s, isSocket, c.troubles...)
		s.send(keys[0], bob.Address, fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, strings.Repeat("x", 300)))
		mechas[c.name] = mecha{f.url, bob.Key, bob, f}
	}
	stdin, err := json.Marshal(mechas)
	if err != nil {
		t.Fatal(err)
	}
	r := finish(t, p.command("receive_and_send.py", "receive"), p.env(s.url, keys[0]), string(stdin)).wantCode(t, 0)
	if pythonComplains.MatchString(r.err) {
		t.Errorf("%s", r.err)
	}
	type report struct {
		Name, Logged string
		Payloads     []struct{ N int }
	}
	reports := map[string]report{}
	for line := range strings.Lines(r.out) {
		one := parse[report](t, []byte(line))
		reports[one.Name] = one
	}
	for i, c := range tries {
		t.Run(c.name, func(t *testing.T) {
			got, f := reports[c.name], mechas[c.name].front
			if len(got.Payloads) != 1 || got.Payloads[0].N != i || !strings.Contains(got.Logged, "trying again") {
				t.Errorf("%+v", got)
			}
			if !notAFrame.MatchString(c.name) && !strings.Contains(got.Logged, "the socket brought") && !strings.Contains(got.Logged, "the relay closed") {
				t.Errorf("it does not say what is wrong, so it may have waited for the end of its patience:\n%s", got.Logged)
			}
			if f.troubles = f.troubles[:len(f.troubles)%1000]; len(c.troubles) > 1 {
				f.troubles = nil
			}
			f.want(t, c.sockets)
			if h := s.history(mechas[c.name].agent, "state=acknowledged"); len(h) != 1 {
				t.Errorf("%d messages are acknowledged", len(h))
			}
		})
	}
}

// The example's worker answers the example's asker, while the relay is killed and started again, and
// in between the worker. Every question has one answer.
func TestThePythonExampleOutlivesKills(t *testing.T) {
	notQuick(t)
	notShort(t)
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	n, kills := questions(t), rounds(t, 1, 10)
	p, db := newPython(t), tempDB(t)
	keys := issue(t, db, "alice^py", "bob^py")
	alice, bob := keys[0], keys[1]
	relay := startProcess(t, db, "--rate-limit", "0", "--require-message-signature")
	front := newFront(t, relay)
	worker := launch(t, p.command("example.py", "worker"), p.env(front.url, bob))
	asker := launch(t, p.command("example.py", "asker", fmt.Sprint(n)), p.env(front.url, alice, "RELAY_TO="+bob.Address))
	for i := range kills {
		eventually(t, 10*patience, "some are answered", func() bool { return strings.Count(asker.stdout.String(), "\n") >= n*(i+1)/(kills+1) })
		if i%3 == 1 {
			worker.kill()
			worker = launch(t, p.command("example.py", "worker"), p.env(front.url, bob))
			continue
		}
		front.loseAnswers(2)
		relay.kill()
		relay = startProcess(t, db, "--rate-limit", "0", "--require-message-signature")
		front.leadTo(relay)
	}
	select {
	case <-asker.exited:
	case <-time.After(10 * patience):
		t.Fatalf("the asker does not end:\n%s", asker.stderr)
	}
	if code := asker.cmd.ProcessState.ExitCode(); code != 0 || pythonComplains.MatchString(asker.stderr.String()) {
		t.Errorf("the asker ends with %d:\n%s", code, asker.stderr)
	}
	lines := strings.Fields(asker.stdout.String())
	slices.Sort(lines)
	if printed := len(lines); printed != n || len(slices.Compact(lines)) != n {
		t.Errorf("%d questions of %d are answered", len(lines), n)
	}
	// A worker that has just begun knows no SIGTERM yet; one that answers does.
	finish(t, p.command("example.py", "asker", "1"), p.env(front.url, alice, "RELAY_TO="+bob.Address), "").wantCode(t, 0)
	n++
	if code := worker.terminate(); code != 0 || pythonComplains.MatchString(worker.stderr.String()) {
		t.Errorf("the worker ends with %d:\n%s", code, worker.stderr)
	}
	answered := map[string]bool{}
	for _, m := range relay.history(alice, "direction=in") {
		answered[m.InReplyTo] = true
	}
	in, pending := relay.history(alice, "direction=in"), relay.history(bob, "direction=in&state=pending")
	if len(in) != n || len(answered) != n || len(pending) != 0 {
		t.Errorf("%d answers to %d questions of %d; %d questions are pending", len(in), len(answered), n, len(pending))
	}
}

// A key that is revoked ends the worker and the asker, with the code.
func TestThePythonExampleEndsWithItsKey(t *testing.T) {
	notQuick(t)
	notShort(t)
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	p, db := newPython(t), tempDB(t)
	keys := issue(t, db, "alice^py", "bob^py")
	s := startServer(t, db)
	worker := launch(t, p.command("example.py", "worker"), p.env(s.url, keys[1]))
	asker := []string{"RELAY_TO=" + keys[1].Address}
	finish(t, p.command("example.py", "asker", "3"), p.env(s.url, keys[0], asker...), "").wantCode(t, 0)
	mustRelay(t, "key", "revoke", "--db", db, keys[1].KeyID)
	if code := worker.wait(); code != 1 || !strings.Contains(worker.stderr.String(), "key_revoked") {
		t.Errorf("the worker ends with %d:\n%s", code, worker.stderr)
	}
	mustRelay(t, "key", "revoke", "--db", db, keys[0].KeyID)
	finish(t, p.command("example.py", "asker", "300"), p.env(s.url, keys[0], asker...), "").wantCode(t, 1, "key_revoked")
}

func TestThePythonClientOverTLS(t *testing.T) {
	notQuick(t)
	notShort(t)
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	p, ca, db := newPython(t), newAuthority(t), tempDB(t)
	keys := issue(t, db, "alice^py", "bob^py")
	s := ca.startTLS(t, t.TempDir(), db, "--require-request-signature")
	trust := "RELAY_CA_FILE=" + ca.file
	worker := launch(t, p.command("example.py", "worker"), p.env(s.url, keys[1], trust))
	r := finish(t, p.command("example.py", "asker", "20"), p.env(s.url, keys[0], trust, "RELAY_TO="+keys[1].Address), "").wantCode(t, 0)
	if code := worker.terminate(); code != 0 || pythonComplains.MatchString(r.err+worker.stderr.String()) {
		t.Errorf("%d\n%s\n%s", code, worker.stderr, r.err)
	}
	finish(t, p.command("example.py", "asker", "1"), p.env(s.url, keys[0], "RELAY_TO="+keys[1].Address), "").wantCode(t, 1, "RELAY_CA_FILE")
}

// asyncio keeps the error of a lost connection in a future, and prints it whenever the garbage collector takes that
// future before others. The client leaves no such future behind.
func TestThePythonClientLeavesNoErrorOfALostConnection(t *testing.T) {
	t.Parallel()
	p := newPython(t)
	const program = `
import asyncio, gc, socket, struct
import relay_client

async def reset(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

async def main():
    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    http = relay_client._Transport("http://127.0.0.1:%d" % server.sockets[0].getsockname()[1], "key", "", None)
    gc.disable()
    for attempt in (http.websocket("/"), http.request("GET", "/", b"", {}, 10)):
        try:
            await attempt
            raise AssertionError("the server answers")
        except relay_client.Unreachable:
            pass
    errors = [f.exception() for f in gc.get_objects() if asyncio.isfuture(f) and f.done() and not f.cancelled() and f._log_traceback]
    assert not errors, errors
    server.close()

asyncio.run(main())
`
	for _, interpreter := range pythons(t) {
		c := exec.Command(interpreter, "-B", "-W", "error", "-c", program)
		c.Dir = p.dir
		if r := finish(t, c, nil, "").wantCode(t, 0); r.err != "" {
			t.Errorf("%s: %s", interpreter, r.err)
		}
	}
}
