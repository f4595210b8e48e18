package cmd_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// answer answers a message as bob, who has no client.
func (p *pair) answer(question, payload string) (id string) {
	p.t.Helper()
	sent := p.ask(p.bob, "POST", "/api/v1/messages", fmt.Sprintf(`{"to":"alice^talk","payload":%s,"in_reply_to":%q}`, payload, question)).want(p.t, http.StatusCreated)
	return parse[record](p.t, sent).MessageID
}

// pushed is how often a message was written to sockets.
func (p *pair) pushed(id string) (n int) {
	p.t.Helper()
	trace := p.ask(p.bob, "GET", "/api/v1/messages/"+id+"/trace", "").want(p.t, http.StatusOK)
	for _, step := range parse[struct{ Steps []struct{ Sockets int } }](p.t, trace).Steps {
		n += step.Sockets
	}
	return n
}

// questionOf waits for a message from alice with this text in its payload.
func (p *pair) questionOf(text string) (id string) {
	p.t.Helper()
	eventually(p.t, patience, "the question "+text+" is there", func() bool {
		for _, m := range p.history(p.bob, "direction=in&include=payload") {
			if strings.Contains(string(m.Payload), text) {
				id = m.MessageID
			}
		}
		return id != ""
	})
	return id
}

// An agent that listens and asks at once: its loop does not see the answers that ask takes,
// neither those that come before the relay has told the id of the question, nor those that wait
// in the listener until ask is over. It sees a second answer, and one that comes too late.
func TestJavaScriptListensWhileItAsks(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	s.patient()
	// The first question is sent, and its 201 is lost twice: until the socket has brought the answer.
	brought := func(_ *troubled, w http.ResponseWriter, _ *http.Request) string {
		answer := p.answer(p.questionOf("early"), `{"text":"early answer"}`)
		eventually(t, patience, "the socket has brought the answer", func() bool { return p.pushed(answer) > 0 })
		return says("")(nil, w, nil)
	}
	f := newTroubled(t, p.server, isSend, lost(0), brought)
	l := s.start(p.aliceEnv(f.url), `
const unmarked = { conversation: "ours", correlationId: "ours" }; // second answers to others come later
relay.ask("bob^talk", { text: "early" }).then((answer) => say({ got: answer.payload.text }), (e) => say({ got: e.message }));
for await (const m of relay.listen({ signal: stop.signal })) {
  say({ seen: m.payload.text });
  if (m.payload.text === "ask") say({ got: (await relay.ask("bob^talk", { text: "within" }, unmarked)).payload.text });
  if (m.payload.text === "wait") await relay.ask("bob^talk", { text: "late" }, { timeout: 1000, ...unmarked }).catch((e) => say({ got: e.code }));
  await m.ack();
}`)
	l.await(l.stdout, `"got":"early answer"`)
	f.want(t, 3)
	p.send(p.bob, "alice^talk", `{"text":"ask"}`)
	within := p.questionOf("within")
	p.answer(within, `{"text":"first"}`)
	p.answer(within, `{"text":"second"}`)
	l.await(l.stdout, `"seen":"second"`)
	p.send(p.bob, "alice^talk", `{"text":"wait"}`)
	late := p.questionOf("late")
	l.await(l.stdout, `"got":"no_answer"`)
	p.answer(late, `{"text":"too late"}`)
	p.send(p.bob, "alice^talk", `{"text":"end"}`)
	l.await(l.stdout, `"seen":"end"`)
	want := []string{`{"got":"early answer"}`, `{"seen":"ask"}`, `{"got":"first"}`, `{"seen":"second"}`, `{"seen":"wait"}`, `{"got":"no_answer"}`, `{"seen":"too late"}`, `{"seen":"end"}`}
	if got := strings.Fields(strings.ReplaceAll(l.stdout.String(), " ", "_")); !slices.Equal(got, strings.Fields(strings.ReplaceAll(strings.Join(want, "\n"), " ", "_"))) {
		t.Errorf("%s", l.stdout)
	}
}

// Whatever waits ends at once: a handshake that nobody answers, the pause between attempts, a
// silent socket, a long-poll, a claim, a question, a send; by close, by a signal, and by
// leaving the loop from outside.
func TestJavaScriptEndsAtOnce(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	r := s.run(append(p.asBob, "SILENT=http://"+silent.Addr().String(), "BUSY="+busy.URL, "ALICE="+p.alice.Key), `
const quiet = { log: null }, away = { url: "http://127.0.0.1:1", ...quiet }, busy = { url: process.env.BUSY, ...quiet }, mute = { url: process.env.SILENT, ...quiet };
const alice = { key: process.env.ALICE, ...quiet };
const first = (options, listen) => (relay) => relay.listen({ ...listen, signal: options }).next();
const waits = {
  handshake: [mute, first()], pause: [busy, first()], claimPause: [busy, first(undefined, { claim: true })],
  socket: [quiet, first()], poll: [quiet, first(undefined, { live: "poll" })], claim: [quiet, first(undefined, { claim: true })],
  ask: [quiet, (r) => r.ask("alice^talk", {})], askMute: [mute, (r) => r.ask("alice^talk", {})], askAway: [away, (r) => r.ask("alice^talk", {})],
  send: [away, (r) => r.send("alice^talk", {})],
};
const begun = [];
for (const [name, [options, wait]] of Object.entries(waits)) {
  const relay = new Relay(options);
  begun.push({ name, outcome: fails(wait(relay)), end: () => relay.close() });
}
for (const listen of [{}, { live: "poll" }, { claim: true }]) {
  const signal = new AbortController();
  begun.push({ name: "signal", outcome: fails(first(signal.signal, listen)(new Relay(quiet))), end: () => signal.abort() });
  const loop = new Relay(quiet).listen(listen);
  begun.push({ name: "return", outcome: fails(loop.next()), end: () => loop.return() });
}
const many = new AbortController(); // of as many questions as there are places, and more
for (let i = 0; i < 30; i++) begun.push({ name: "asks", outcome: fails(new Relay(alice).ask("alice^talk", {}, { signal: many.signal })), end: () => many.abort(new Error("enough")) });
while ((await new Relay(alice).inbox()).pending < 31) await new Promise((r) => setTimeout(r, 50));
const asks = new Relay(mute);
begun.push({ name: "whoami", outcome: fails(asks.whoami()), end: () => asks.close() });
const began = performance.now();
await Promise.all(begun.map((b) => b.end()));
for (const { name, outcome } of begun) {
  const { code, value, message } = await outcome;
  say({ name, ended: typeof code === "string" ? code : (value?.done ? "done" : message ?? ""), late: performance.now() - began > 8000 });
}
const closed = new Relay();
await closed.close();
await closed.close();
say({ name: "after", ended: (await fails(closed.send("alice^talk", {}))).code });
for await (const m of closed.listen()) say(m);`)
	r.wantCode(t, 0)
	for _, l := range linesOf[struct {
		Name, Ended string
		Late        bool
	}](t, r.out) {
		want := "done"
		switch l.Name {
		case "ask", "askMute", "askAway", "send", "whoami", "after":
			want = "closed"
		case "asks":
			want = "enough"
		}
		if l.Ended != want || l.Late {
			t.Errorf("%+v, want %s", l, want)
		}
	}
	if r.err != "" {
		t.Errorf("%s", r.err)
	}
}

// A program that ends leaves what it has in hand pending, or finishes it, and no fault of one
// message is an unhandled rejection: a key that is revoked ends the loop.
func TestJavaScriptEndsWithWorkInHand(t *testing.T) {
	notQuick(t)
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	const work = `
const jobs = [];
try {
  for await (const m of relay.listen({ signal: stop.signal })) {
    jobs.push(m.handle(async () => {
      say({ id: m.id });
      if (m.payload.ask) await relay.ask("alice^talk", {}, process.env.WITHOUT ? {} : { signal: stop.signal });
      else await new Promise((r) => stop.signal.addEventListener("abort", r));
      await m.reply({});
    }));
  }
} catch (e) { say({ code: e.code }); }
stop.abort();
await Promise.all(jobs);`
	l := s.start(p.asBob, work)
	asks, answers := p.send(p.alice, "bob^talk", `{"ask":true}`), p.send(p.alice, "bob^talk", `{}`)
	l.await(l.stdout, answers.MessageID)
	eventually(t, patience, "the question is there", func() bool { return p.count(p.alice) == 1 })
	if code := l.terminate(); code != 0 {
		t.Errorf("exit %d\n%s", code, l.stderr)
	}
	if a, b := p.record(p.bob, asks.MessageID), p.record(p.bob, answers.MessageID); a.status() != "processing" || b.status() != "completed" || len(p.history(p.alice, "direction=in&state=pending")) != 2 {
		t.Errorf("%+v %+v", a, b)
	}
	l = s.start(append(p.asBob, "WITHOUT=signal"), work)
	l.await(l.stdout, asks.MessageID)
	mustRelay(t, "key", "revoke", "--db", p.db, p.bob.KeyID)
	l.await(l.stdout, `"code":"key_revoked"`)
	if code := l.wait(); code != 0 {
		t.Errorf("exit %d\n%s", code, l.stderr)
	}
}

// The client reads the key and the signing secret from files, as the commands of relay do.
func TestJavaScriptReadsFiles(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, db := mustScript(t), tempDB(t)
	alice := issue(t, db, "alice^file", "--signing-secret")[0]
	relay := startServer(t, db, "--require-request-signature")
	bad := s.write("bad", "two words")
	key, secret := s.write("key", alice.Key+"\n"), s.write("secret", *alice.Secret+"\n")
	r := s.run([]string{"RELAY_URL=" + relay.url, "RELAY_KEY=mk_other", "RELAY_SIGNING_SECRET=other", "RELAY_KEY_FILE=" + key, "RELAY_SIGNING_SECRET_FILE=" + secret, "KEY=" + alice.Key, "SECRET=" + *alice.Secret, "BAD=" + bad}, `
const { KEY, SECRET } = process.env;
say(await relay.whoami());
say(await fails(new Relay({ keyFile: process.env.RELAY_KEY_FILE + "x" }).ask("alice^file", {})));
say(await fails(new Relay({ keyFile: process.env.BAD }).listen().next()));
say(await new Relay({ key: KEY, signingSecret: SECRET }).whoami());`)
	r.wantCode(t, 0)
	got := linesOf[struct{ MechaID, Name, Message string }](t, r.out)
	if len(got) != 4 || got[0].MechaID != "alice^file" || got[1].Name != "TypeError" || !strings.Contains(got[1].Message, "keyx (RELAY_KEY_FILE): ENOENT") || !strings.Contains(got[2].Message, "bad (RELAY_KEY_FILE) has no key") || got[3].MechaID != "alice^file" {
		t.Errorf("%s", r.out)
	}
}

// A worker that stood still for longer than its lease, as on a machine that slept, notices it by
// itself: it neither answers nor acknowledges what another worker has.
func TestJavaScriptSleepsLongerThanItsLease(t *testing.T) {
	notQuick(t)
	notOnWindows(t, "a process cannot be stopped")
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	const work = `
import { existsSync } from "node:fs";
for await (const m of relay.listen({ claim: true, lease: 15_000, signal: stop.signal })) {
  await m.handle(async () => {
    say({ id: m.id, attempt: m.attempt });
    if (m.attempt === 1 && !m.signal.aborted) await new Promise((r) => m.signal.addEventListener("abort", r));
    while (m.attempt === 2 && !existsSync(process.env.GO)) await new Promise((r) => setTimeout(r, 20));
    say(await fails(m.reply({ attempt: m.attempt })));
  });
}`
	env := append(p.asBob, "GO="+filepath.Join(s.dir, "go"))
	first := s.start(env, work)
	m := p.send(p.alice, "bob^talk", `{}`)
	first.await(first.stdout, m.MessageID)
	pause(first)
	second := s.start(env, work)
	second.await(second.stdout, m.MessageID+`","attempt":2`)
	resume(first) // the relay would renew the lease for it: both have the same key
	first.await(first.stdout, `"code":"lease_lost"`)
	s.write("go", "")
	p.awaitStatus(m.MessageID, "completed")
	first.terminate()
	second.terminate()
	if n := p.count(p.alice); n != 1 || !strings.Contains(second.stdout.String(), `"attempt":2`) {
		t.Errorf("%d answers; the second worker: %s", n, second.stdout)
	}
}

// No renewal of a lease comes after a deferral, or while it is under way: it would undo it.
func TestJavaScriptRenewsNothingThatIsPutOff(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	held, over := make(chan string, 10), make(chan bool)
	isAck := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/ack") }
	hold := func(_ *troubled, w http.ResponseWriter, r *http.Request) string {
		body := make([]byte, 1024)
		n, _ := r.Body.Read(body)
		held <- string(body[:n])
		<-over
		w.WriteHeader(http.StatusServiceUnavailable) // no cut connection: Deno would send the request again on its own
		return ""
	}
	f := newTroubled(t, p.server, isAck, hold, hold)
	l := s.start(append(p.bobEnv(f.url), "GO="+filepath.Join(s.dir, "go")), `
import { existsSync } from "node:fs";
for await (const m of relay.listen({ claim: true, lease: 15000, signal: stop.signal })) {
  say({ id: m.id, attempt: m.attempt });
  if (m.attempt > 1) { await m.ack(); continue; }
  while (!existsSync(process.env.GO)) await new Promise((r) => setTimeout(r, 20)); // the first renewal is under way
  say({ id: m.id, defers: true });
  await m.defer(1000);
}`)
	m := p.send(p.alice, "bob^talk", `{}`)
	if renewal := <-held; !strings.Contains(renewal, "processing") {
		t.Errorf("%s", renewal)
	}
	s.write("go", "")
	l.await(l.stdout, "defers")
	select {
	case other := <-held:
		t.Errorf("%s came while a renewal was under way", other)
	case <-time.After(time.Second): // the deferral has begun to wait
	}
	over <- true
	if deferral := <-held; !strings.Contains(deferral, "deferred") {
		t.Errorf("%s", deferral)
	}
	over <- true
	p.awaitStatus(m.MessageID, "completed")
	l.await(l.stdout, `"attempt":2`)
	l.terminate()
}
