package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"relay/db/scratch"
)

// The client in JavaScript, as relay client js prints it, under Node.js, or under the
// command of RELAY_TEST_JAVASCRIPT, such as "deno run -A" or bun.

// scripts is a folder with the client, and the command that runs a script.
type scripts struct {
	t       testing.TB
	dir     string
	command []string
}

// nodeVersion asks node once for all tests: each of its starts takes as much of the processor as a small test.
var nodeVersion = sync.OnceValues(func() ([]byte, error) { return exec.Command("node", "--version").Output() })

func mustScript(t testing.TB) *scripts {
	t.Helper()
	command := strings.Fields(os.Getenv("RELAY_TEST_JAVASCRIPT"))
	if len(command) == 0 {
		tool(t, "node")
		version, err := nodeVersion()
		if major, _ := strconv.Atoi(strings.Split(strings.TrimPrefix(string(version), "v"), ".")[0]); err != nil || major < 20 {
			t.Skipf("node is %s: the client needs 20", version)
		}
		command = []string{"node"}
	}
	s := &scripts{t, t.TempDir(), command}
	s.write("relay.mjs", mustRelay(t, "client", "js"))
	s.write("example.mjs", mustRelay(t, "client", "js", "--example"))
	return s
}

func (s *scripts) write(name, text string) (path string) {
	s.t.Helper()
	path = filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// prelude begins each script of the tests. say prints a line of JSON; until ends a loop.
const prelude = `import process from "node:process";
import { Relay, RelayError, Unreachable, NoAnswer, version } from "./relay.mjs";
const say = (value) => console.log(JSON.stringify(value));
const fails = (promise) => promise.then((v) => ({ value: v }), (e) => ({ name: e.constructor.name, code: e.code, status: e.status, detail: e.detail, message: e.message, didYouMean: e.didYouMean, retryAfter: e.retryAfter, requestId: e.requestId, verdict: e.verdict, temporary: e.temporary }));
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
const relay = new Relay();
`

func (s *scripts) program(file string, args ...string) *exec.Cmd {
	return exec.Command(s.command[0], slices.Concat(s.command[1:], []string{file}, args)...)
}

// start runs a script, and run does so to its end.
func (s *scripts) start(env []string, text string) *server {
	s.t.Helper()
	return launch(s.t, s.program(s.write(fmt.Sprintf("script%d.mjs", s.count()), prelude+text)), env)
}

func (s *scripts) run(env []string, text string) result {
	s.t.Helper()
	return finish(s.t, s.program(s.write(fmt.Sprintf("script%d.mjs", s.count()), prelude+text)), env, "")
}

func (s *scripts) count() int {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "*.mjs"))
	if err != nil {
		s.t.Fatal(err)
	}
	return len(files)
}

// said parses what a script has said.
func linesOf[T any](t testing.TB, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		all = append(all, parse[T](t, []byte(line)))
	}
	return all
}

// The test vector of the page signing.
func TestJavaScriptSigns(t *testing.T) {
	t.Parallel()
	s, db := mustScript(t), tempDB(t)
	keys := issue(t, db, "alice^sign", "bob^sign", "--signing-secret")
	page, err := os.ReadFile("../http/docs/signing.md")
	if err != nil {
		t.Fatal(err)
	}
	row := func(name string) string {
		m := regexp.MustCompile(`(?m)^\| ` + name + ` +\| ` + "`(.*)`" + ` \|$`).FindSubmatch(page)
		if m == nil {
			t.Fatalf("the page has no row %s", name)
		}
		return string(m[1])
	}
	r := s.run([]string{"RELAY_URL=https://example.com/behind/", "RELAY_KEY=" + row("key")}, fmt.Sprintf(`
const [method, path, body, nonce, timestamp] = %s;
say(await relay.sign(method, path, body, { nonce, timestamp }));
const { "X-Nonce": a } = await relay.sign("GET", "/"), { "X-Nonce": b } = await relay.sign("GET", "/");
say({ differ: String(a !== b && a.length >= 16), version });`, mustJSON(t, []string{row("method"), row("path"), row("body"), row("nonce"), row("timestamp")})))
	r.wantCode(t, 0)
	told := linesOf[map[string]string](t, r.out)
	want := map[string]string{"X-Mecha-Key": row("key"), "X-Nonce": row("nonce"), "X-Request-Timestamp": row("timestamp"), "X-Signature": row("signature"), "X-Request-Signature": row("request signature")}
	for name, value := range want {
		if told[0][name] != value {
			t.Errorf("%s: %q, want %q", name, told[0][name], value)
		}
	}
	if told[1]["differ"] != "true" || told[1]["version"] == "" || strings.Contains(told[1]["version"], "unstamped") {
		t.Errorf("%v", told[1])
	}
	// A secret of its own, where every request must be signed whole, socket and query included.
	alice, relay := keys[0], startServer(t, db, "--require-request-signature")
	env := []string{"RELAY_URL=" + relay.url, "RELAY_KEY=" + alice.Key, "RELAY_SIGNING_SECRET=" + *alice.Secret}
	r = s.run(env, `
const sent = await relay.send("alice^sign", { text: "Grüezi | ✓" }, { conversation: "a|b".replace("|", "~"), priority: "high" });
for await (const m of relay.listen()) {
  await m.ack();
  const { ack, signed, payload } = await relay.message(m.id);
  say({ status: ack.status, signed, same: m.id === sent.messageId && payload.text === m.payload.text, text: m.payload.text, to: m.to, sender: m.sender, own: (await relay.whoami()).mechaId, history: (await relay.history("a~b")).length });
  break;
}`)
	r.wantCode(t, 0)
	got := linesOf[struct {
		Status, Text, To, Sender, Own string
		Same, Signed                  bool
		History                       int
	}](t, r.out)
	if len(got) != 1 || !got[0].Same || !got[0].Signed || got[0].Status != "completed" || got[0].Text != "Grüezi | ✓" || got[0].To != "alice^sign" || got[0].Sender != got[0].To || got[0].Own != got[0].To || got[0].History != 1 {
		t.Errorf("%+v", got)
	}
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The asker of an example asks the worker of one, of the same language or of another, while
// the relay is killed and restarted and answers get lost. Nothing is lost, and nothing is
// answered twice.
func TestJavaScriptAsksAndAnswersThroughRestarts(t *testing.T) {
	notQuick(t) // TestClientsOfAllLanguagesTalk is short
	notShort(t)
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	s := mustScript(t)
	js := s.program(filepath.Join(s.dir, "example.mjs")).Args
	s.write("relay_client.py", mustRelay(t, "client", "python"))
	python := []string{scratch.Python(s.t), s.write("example.py", mustRelay(t, "client", "python", "--example"))}
	for name, c := range map[string]struct {
		asker, worker []string
	}{"JavaScript": {js, js}, "JavaScript asks Python": {js, python}, "Python asks JavaScript": {python, js}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tool(t, c.asker[0], c.worker[0])
			talkThroughRestarts(t, questions(t), c.asker, c.worker)
		})
	}
}

func talkThroughRestarts(t *testing.T, n int, askerArgs, workerArgs []string) {
	p := newPairWithProcess(t, "--rate-limit", "0")
	f := newFront(t, p.server)
	worker := launch(t, exec.Command(workerArgs[0], append(workerArgs[1:len(workerArgs):len(workerArgs)], "worker")...), p.bobEnv(f.url))
	asker := launch(t, exec.Command(askerArgs[0], append(askerArgs[1:len(askerArgs):len(askerArgs)], "asker", strconv.Itoa(n))...), append(p.aliceEnv(f.url), "RELAY_TO=bob^talk"))
	kills := rounds(t, 1, 4)
	for part := range kills {
		so := n * (part + 1) / (kills + 1)
		eventually(t, patience, fmt.Sprintf("%d answers are there", so), func() bool { return strings.Count(asker.stdout.String(), "\n") >= so })
		f.loseAnswers(3)
		p.kill()
		p.server = startProcess(t, p.db, "--require-message-signature", "--rate-limit", "0")
		f.leadTo(p.server)
	}
	if code := asker.wait(); code != 0 {
		t.Fatalf("the asker: exit %d\n%s", code, asker.stderr)
	}
	// The asker has its last answers before the worker has acknowledged their questions.
	eventually(t, patience, "all is acknowledged", func() bool { return len(p.history(p.bob, "direction=in&state=pending")) == 0 })
	if code := worker.terminate(); code != 0 {
		t.Errorf("the worker: exit %d\n%s", code, worker.stderr)
	}
	numbers := strings.Fields(asker.stdout.String())
	slices.Sort(numbers)
	if len(numbers) != n || len(slices.Compact(numbers)) != n {
		t.Errorf("the asker has %d lines", len(numbers))
	}
	answered := map[string]int{}
	for _, m := range p.fullHistory(p.bob) {
		switch {
		case m.From == p.alice.Address && m.status() != "completed":
			t.Errorf("%s is %s", m.MessageID, m.status())
		case m.From == p.bob.Address:
			answered[m.InReplyTo]++
		}
	}
	if len(answered) != n || p.count(p.alice) != n || p.count(p.bob) != n || f.answersLost() == 0 {
		t.Errorf("%d questions answered, %d answers and %d questions of %d; %d answers of the relay got lost", len(answered), p.count(p.alice), p.count(p.bob), n, f.answersLost())
	}
}

// fullHistory reads all pages of a Mecha's messages.
func (p *pair) fullHistory(a agent) (all []fullRecord) {
	p.t.Helper()
	for cursor, more := "", true; more; {
		page := parse[struct {
			Messages   []fullRecord
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}](p.t, p.ask(a, "GET", "/api/v1/mecha/"+a.Address+"/messages?limit=1000"+cursor, "").want(p.t, 200))
		all, more, cursor = append(all, page.Messages...), page.HasMore, "&since_message_id="+page.NextCursor
	}
	return all
}

// count is how many messages a Mecha has received.
func (p *pair) count(a agent) int {
	p.t.Helper()
	return len(p.history(a, "direction=in"))
}

// Of two workers that claim, each message goes to one. A worker that is killed leaves its
// message to the other; a worker that takes longer than its lease keeps its message.
func TestJavaScriptClaims(t *testing.T) {
	notQuick(t)
	notShort(t)
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	const work = `
for await (const m of relay.listen({ claim: true, lease: 15_000, worker: process.argv[2], signal: stop.signal })) {
  say({ id: m.id, attempt: m.attempt, what: m.payload.what ?? "", signed: m.signed });
  if (m.payload.what === "die") await new Promise((r) => setTimeout(r, 1e6));
  if (m.payload.what === "long") await m.handle(() => new Promise((r) => setTimeout(r, 17_000)));
  else await m.handle(() => {});
  if (m.payload.what === "long") say({ id: m.id, what: "done", aborted: m.signal.aborted });
}`
	type line struct {
		ID, What string
		Attempt  int
		Signed   bool
		Aborted  bool
	}
	first := s.start(p.asBob, work)
	die := p.send(p.alice, "bob^talk", `{"what":"die"}`)
	first.await(first.stdout, die.MessageID)
	second := s.start(p.asBob, work)
	long := p.send(p.alice, "bob^talk", `{"what":"long"}`)
	second.await(second.stdout, long.MessageID) // the first one holds what it may hold
	third := s.start(p.asBob, work)
	first.kill()
	third.await(third.stdout, die.MessageID+`","attempt":2`)
	third.kill()
	second.await(second.stdout, long.MessageID+`","what":"done"`)
	p.awaitStatus(long.MessageID, "completed")
	fourth := s.start(p.asBob, work)
	for range 20 {
		p.send(p.alice, "bob^talk", `{}`)
	}
	eventually(t, patience, "the small ones are done", func() bool {
		return len(p.history(p.bob, "state=acknowledged")) == 21
	})
	second.kill()
	fourth.kill()
	seen := map[string]int{}
	for _, l := range append(linesOf[line](t, second.stdout.String()), linesOf[line](t, fourth.stdout.String())...) {
		if l.What == "" {
			seen[l.ID]++
		}
		if l.What == "done" && l.Aborted || l.ID == long.MessageID && l.Attempt > 1 {
			t.Errorf("the long one: %+v", l)
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was given to %d workers", id, n)
		}
	}
	if len(seen) != 20 {
		t.Errorf("%d messages were claimed", len(seen))
	}
}

// A deferred message is redelivered after that time, over a socket and by long-polls.
func TestJavaScriptDefers(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	for live, pause := range map[string]int{"socket": 1000, "poll": -1} {
		l := s.start(p.asBob, fmt.Sprintf(`
for await (const m of relay.listen({ live: %q, signal: stop.signal })) {
  say({ id: m.id, attempt: m.attempt });
  if (m.attempt === 1) await m.handle(() => m.defer(%d, "not now"));
  else await m.ack();
}`, live, pause))
		m := p.send(p.alice, "bob^talk", `{"n":1}`)
		p.awaitStatus(m.MessageID, "completed")
		l.terminate()
		if got := linesOf[struct{ Attempt int }](t, l.stdout.String()); len(got) != 2 || got[0].Attempt != 1 || got[1].Attempt != 2 {
			t.Errorf("%s: %+v", live, got)
		}
	}
	// Another program has deferred it, and only then a listener begins to poll.
	m := p.send(p.alice, "bob^talk", `{"n":1}`)
	p.ask(p.bob, "POST", "/api/v1/messages/"+m.MessageID+"/ack", `{"status":"deferred","client_ts":"2026-01-02T03:04:05Z","retry_after_seconds":2}`).want(t, 200)
	l := s.start(p.asBob, `
for await (const m of relay.listen({ live: "poll", signal: stop.signal })) {
  say({ id: m.id, attempt: m.attempt });
  await m.ack();
}`)
	next := p.send(p.alice, "bob^talk", `{"n":2}`)
	p.awaitStatus(m.MessageID, "completed")
	l.terminate()
	if got := linesOf[struct{ ID string }](t, l.stdout.String()); len(got) != 2 || got[0].ID != next.MessageID || got[1].ID != m.MessageID {
		t.Errorf("%+v, want first %s", got, next.MessageID)
	}
}

// Two that answer everything are stopped by the breaker.
func TestJavaScriptBreaker(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	const answer = `
for await (const m of relay.listen({ breaker: 5, signal: stop.signal })) await m.handle(() => m.reply({ n: m.payload.n + 1 }));`
	s.start(p.asBob, answer)
	s.start(p.asAlice, answer)
	first := p.send(p.alice, "bob^talk", `{"n":0}`)
	var stopped fullRecord
	eventually(t, patience, "the breaker has stopped it", func() bool {
		for _, m := range p.fullHistory(p.bob) {
			if m.status() == "failed" {
				stopped = p.record(p.bob, m.MessageID)
			}
		}
		return stopped.Ack != nil
	})
	if !strings.Contains(stopped.Ack.Detail, "has had 5 answers") || stopped.ConversationID != first.ConversationID || len(p.history(p.bob, "")) != 11 {
		t.Errorf("%+v after %d messages", stopped, len(p.history(p.bob, "")))
	}
}
