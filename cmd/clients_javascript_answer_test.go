package cmd_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"relay/db/scratch"
)

// An answer is sent once, however often a worker gets the question. Another answer is sent, too:
// a worker may say that it has begun, crash, and answer at its next attempt.
func TestJavaScriptSendsEachAnswerOnce(t *testing.T) {
	notQuick(t) // the usual form asks the client in Python
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	const work = `
for await (const m of relay.listen({ signal: stop.signal })) {
  const sent = [await m.reply({ text: "begun" })];
  if (process.argv[2]) {
    sent.push(await m.reply({ text: "done" }), await m.reply({ text: "done" }));
    say(await fails(m.reply({ text: "taken" }, { idempotencyKey: "k" })));
    say(await fails(m.reply({ text: "other" }, { idempotencyKey: "k" })));
  }
  say({ id: m.id, replayed: sent.map((one) => one.replayed), different: new Set(sent.map((one) => one.messageId)).size });
  if (process.argv[2]) await m.ack();
}`
	question := p.send(p.alice, "bob^talk", `{}`)
	first := s.start(p.asBob, work)
	first.await(first.stdout, question.MessageID)
	first.kill()
	second := launch(t, s.program(s.write("second.mjs", prelude+work), "again"), p.asBob)
	second.await(second.stdout, question.MessageID)
	said := second.stdout.String()
	if !strings.Contains(said, `"replayed":[true,false,false],"different":3`) || !strings.Contains(said, `"code":"idempotency_key_reused"`) {
		t.Error(said)
	}
	var texts []string
	for _, m := range p.history(p.alice, "direction=in&include=payload") {
		texts = append(texts, string(m.Payload))
	}
	if want := []string{`{"text":"begun"}`, `{"text":"done"}`, `{"text":"done"}`, `{"text":"taken"}`}; !slices.Equal(texts, want) {
		t.Errorf("%s, want %s", texts, want)
	}
	// The key, as every client makes it (the page clients).
	body := fmt.Sprintf(`{"to":"alice^talk","payload":{"text":"done"},"message_type":"reply","in_reply_to":%q}`, question.MessageID)
	sum := sha256.Sum256([]byte(body))
	key := "reply-" + question.MessageID + "-" + hex.EncodeToString(sum[:8]) + "-2"
	if again := p.ask(p.bob, "POST", "/api/v1/messages", body, "Idempotency-Key", key); again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the second answer had another key than %s", key)
	}
	second.kill()
}

// One process of a Mecha asks, and others listen: they leave the answers to the one that has
// asked. Its marks are those of all clients (the page clients).
func TestJavaScriptLeavesAnswersToWhoHasAsked(t *testing.T) {
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	var listeners []*server
	kinds := []string{`live: "socket"`}
	if scratch.Long(t) {
		kinds = append(kinds, "claim: true", `live: "poll"`)
	}
	for _, options := range kinds {
		listeners = append(listeners, s.start(p.asAlice, fmt.Sprintf(`
for await (const m of relay.listen({ %s, breaker: 1, signal: stop.signal })) say({ seen: m.payload.text });`, options)))
	}
	p.send(p.bob, "alice^talk", `{"text":"begin"}`)
	for _, l := range listeners {
		l.await(l.stdout, "begin")
	}
	s.start(p.asBob, `
for await (const m of relay.listen({ signal: stop.signal })) m.handle(() => m.reply({ text: "answer " + m.payload.n }));`)
	r := s.run(p.asAlice, `
const options = [{}, { conversation: "ours" }, { idempotencyKey: "k" }, { conversation: "ours", correlationId: "" }];
const answers = await Promise.all(options.map((o, n) => relay.ask("bob^talk", { n }, o)));
say(answers.map((m) => m.payload.text));
say((await relay.ask("bob^talk", { n: 2 }, { idempotencyKey: "k" })).payload.text);`)
	if r.wantCode(t, 0); r.out != "[\"answer 0\",\"answer 1\",\"answer 2\",\"answer 3\"]\n\"answer 2\"\n" {
		t.Error(r.out)
	}
	p.send(p.bob, "alice^talk", `{"text":"end"}`)
	for _, l := range listeners {
		l.await(l.stdout, "end")
		if got, want := l.stdout.String(), "{\"seen\":\"begin\"}\n{\"seen\":\"end\"}\n"; got != want {
			t.Errorf("a listener has seen\n%s", got)
		}
	}
	whom, key := sha256.Sum256([]byte("bob^talk")), sha256.Sum256([]byte("k"))
	mark := "ask-" + hex.EncodeToString(whom[:4]) + "-"
	form := regexp.MustCompile("^" + mark + "[0-9a-f]{24}$")
	for i, m := range p.fullHistory(p.alice) {
		if m.From != "alice^talk" {
			continue
		}
		ours := m.ConversationID == "ours"
		if ours && !form.MatchString(m.CorrelationID) || !ours && !form.MatchString(m.ConversationID) {
			t.Errorf("number %d: the conversation %s, the correlation id %q", i, m.ConversationID, m.CorrelationID)
		}
	}
	if again := p.history(p.bob, "direction=in&conversation_id="+mark+hex.EncodeToString(key[:12])); len(again) != 1 {
		t.Errorf("%d questions have the key", len(again))
	}
}

// An answer whose asker is gone is given out at its fourth attempt, by a listener that claims and
// by one that does not, and holds up nothing meanwhile.
func TestJavaScriptGivesOutAnswersThatNobodyWaitsFor(t *testing.T) {
	notQuick(t) // it takes seven seconds
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	for i, options := range []string{"claim: true", `live: "socket"`, `live: "poll"`} {
		l := s.start(p.asAlice, fmt.Sprintf(`
for await (const m of relay.listen({ %s, signal: stop.signal })) {
  say({ id: m.id, attempt: m.attempt });
  await m.ack();
}`, options))
		whom := sha256.Sum256([]byte("bob^talk"))
		question := p.ask(p.alice, "POST", "/api/v1/messages", fmt.Sprintf(`{"to":"bob^talk","payload":{},"conversation_id":"ask-%x-%024x"}`, whom[:4], i)).want(t, 201)
		answer := p.answer(parse[record](t, question).MessageID, `{}`)
		other := p.send(p.bob, "alice^talk", `{}`)
		l.await(l.stdout, answer)
		p.awaitStatus(answer, "completed")
		p.awaitStatus(other.MessageID, "completed")
		if got, want := l.stdout.String(), fmt.Sprintf("{\"id\":%q,\"attempt\":1}\n{\"id\":%q,\"attempt\":4}\n", other.MessageID, answer); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", options, got, want)
		}
		l.kill()
	}
}

// A process knows whether it still waits for an answer to its own question: its loop gets what
// comes too late at once.
func TestJavaScriptGivesOutLateAnswersToItsOwnQuestions(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	for _, options := range []string{"{ signal: stop.signal }", "{ signal: stop.signal, claim: true }"} {
		l := s.start(p.asAlice, fmt.Sprintf(`
let e;
for (let timeout = 0.2; !e?.messageId; timeout *= 2) { // on a busy machine even the 201 may come later
  e = await relay.ask("bob^talk", {}, { timeout }).catch((e) => e);
}
say({ asked: e.messageId });
for await (const m of relay.listen(%s)) {
  say({ id: m.id, attempt: m.attempt });
  await m.ack();
}`, options))
		l.await(l.stdout, "asked")
		answer := p.answer(parse[struct{ Asked string }](t, []byte(l.stdout.String())).Asked, `{}`)
		l.await(l.stdout, answer)
		if !strings.Contains(l.stdout.String(), fmt.Sprintf("{\"id\":%q,\"attempt\":1}\n", answer)) {
			t.Errorf("%s:\n%s", options, l.stdout)
		}
		l.kill()
	}
}

// The directory learns from what a program has found and asked, once the question is completed.
func TestJavaScriptTeachesTheDirectory(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	p.describeBob()
	worker := s.start(p.asBob, `
for await (const m of relay.listen({ signal: stop.signal })) await m.handle(() => m.reply({ n: 2 }));`)
	r := s.run(p.asAlice, `
const [agent] = await relay.find("book a flight");
say({ found: agent.address, n: (await relay.ask(agent, {})).payload.n });`)
	if r.wantCode(t, 0); r.out != "{\"found\":\"bob^talk\",\"n\":2}\n" {
		t.Error(r.out)
	}
	p.wantWords("book", "flight")
	worker.kill()
}

// A program asks itself: its loop gets the question, and ask the answer.
func TestJavaScriptAsksItself(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	for _, options := range []string{"{}", "{ claim: true }"} {
		r := s.run(p.asAlice, fmt.Sprintf(`
const asked = new Promise((r) => setTimeout(r, 100)).then(() => relay.ask("alice^talk", { n: 1 }, { timeout: 60_000 })).finally(() => stop.abort());
for await (const m of relay.listen({ ...%s, signal: stop.signal })) {
  say({ n: m.payload.n });
  m.handle(() => m.reply({ n: 2 }));
}
say({ n: (await asked).payload.n });`, options))
		if r.wantCode(t, 0); r.out != "{\"n\":1}\n{\"n\":2}\n" {
			t.Errorf("%s: %s", options, r.out)
		}
	}
}

// A claimed message that waits in a queue of the program keeps its lease: no other worker gets it.
func TestJavaScriptKeepsTheLeaseOfWhatWaits(t *testing.T) {
	notQuick(t) // it takes 18 seconds
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	env := append(p.asBob, "GO="+filepath.Join(s.dir, "go"))
	// The lease of this one ends after those of the hoarder would: then the hoarder gets it.
	p.send(p.alice, "bob^talk", `{"n":9}`)
	p.ask(p.bob, "POST", "/api/v1/mecha/bob^talk/claim", `{"limit":1,"lease_seconds":18,"worker":"clock"}`).want(t, 200)
	hoarder := s.start(env, `
import { existsSync } from "node:fs";
const waiting = [];
const collected = (async () => {
  for await (const m of relay.listen({ claim: true, lease: 15_000, signal: stop.signal })) {
    waiting.push(m);
    say({ claimed: m.payload.n });
  }
})();
while (!existsSync(process.env.GO)) await new Promise((r) => setTimeout(r, 200));
await Promise.all(waiting.map((m) => m.handle(() => say({ handled: m.payload.n }))));
stop.abort();
await collected;`)
	var sent []record
	for n := range 5 {
		sent = append(sent, p.send(p.alice, "bob^talk", fmt.Sprintf(`{"n":%d}`, n)))
	}
	hoarder.await(hoarder.stdout, `"claimed":9`)
	other := s.start(env, `
for await (const m of relay.listen({ claim: true, signal: stop.signal })) {
  say({ n: m.payload.n, attempt: m.attempt });
  await m.ack();
}`)
	last := p.send(p.alice, "bob^talk", `{"n":10}`) // for either of them: the other one looks for work
	s.write("go", "")
	for _, m := range sent {
		p.awaitStatus(m.MessageID, "completed")
	}
	if code := hoarder.wait(); code != 0 || strings.Count(hoarder.stdout.String(), "handled") < 6 {
		t.Errorf("exit %d\n%s%s", code, hoarder.stdout, hoarder.stderr)
	}
	p.awaitStatus(last.MessageID, "completed")
	for n := range 5 {
		if got := strings.Count(hoarder.stdout.String(), fmt.Sprintf("{\"claimed\":%d}", n)); got != 1 {
			t.Errorf("number %d was claimed %d times", n, got)
		}
	}
	if got := regexp.MustCompile(`\{"n":10,"attempt":\d\}\n`).ReplaceAllString(other.stdout.String(), ""); got != "" {
		t.Errorf("the other worker got %s", got)
	}
	other.kill()
}

// Whatever the work throws, the message is acknowledged as failed, and the worker continues.
func TestJavaScriptSurvivesWhatIsThrown(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	l := s.start(p.asBob, `
const trap = () => { throw new Error("a trap"); };
const thrown = [
  Object.create(null), undefined, null, "", Symbol("of ours"), { get message() { return trap(); } }, { message: Object.create(null) },
  { toString: trap }, { get name() { return trap(); }, message: "a good text" }, new Proxy({}, { get: trap, getPrototypeOf: trap }), 17n,
];
for await (const m of relay.listen({ signal: stop.signal })) {
  await m.handle(() => { throw thrown[m.payload.n]; });
  say({ alive: m.payload.n });
}`)
	none := "an error without a text"
	for n, want := range []string{none, "undefined", "null", none, "Symbol(of ours)", none, none, none, "a good text", none, "17"} {
		m := p.send(p.alice, "bob^talk", fmt.Sprintf(`{"n":%d}`, n))
		l.await(l.stdout, fmt.Sprintf(`"alive":%d\}`, n))
		if got := p.record(p.bob, m.MessageID); got.status() != "failed" || got.Ack.Detail != want {
			t.Errorf("number %d is acknowledged with %+v, want %q", n, got.Ack, want)
		}
	}
	l.kill()
}

// What JSON would lose without a word is refused, and what it can say is sent as it is.
func TestJavaScriptRefusesWhatJSONWouldLose(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, b := mustScript(t), newBadRelay(t)
	r := s.run([]string{"RELAY_URL=" + b.URL, "RELAY_KEY=mk_x"}, `
const bad = [
  new Map([[1, 2]]), new Set([1]), new Uint8Array(2), new ArrayBuffer(2), new Error("x"), Promise.resolve(1), /x/, new WeakMap(), 1n, NaN, -Infinity,
  () => 1, Symbol("x"), [undefined], [() => 1], new Date(NaN), new URLSearchParams("a=1"), (function* () {})(),
];
const loop = {};
loop.loop = loop;
for (const payload of [...bad, ...bad.map((b) => ({ deep: [{ member: b }] })), loop, new Date(0), [], "text", null, undefined, { toJSON: () => undefined }])
  say(await fails(relay.send("bob^talk", payload)));
say(await fails(relay.ask("bob^talk", { found: new Map() })));
class Quote { #secret = 1; price = 17; }
class Money { constructor(n) { this.n = n; } toJSON() { return { euro: this.n, absent: null }; } }
await relay.send("bob^talk", {
  date: new Date(0), url: new URL("http://a/b"), quote: new Quote(), money: new Money(3), without: undefined, none: null, no: Object.create(null),
  text: new String("text"), list: [1, "ü", null, []], bytes: Array.from(new Uint8Array([1, 2])), "__proto__x": 1,
});
await relay.send("bob^talk", new Money(4), { type: "t" });`)
	r.wantCode(t, 0)
	for i, f := range linesOf[struct{ Name, Message string }](t, r.out) {
		if f.Name != "TypeError" || strings.Contains(f.Message, "undefined is not") {
			t.Errorf("number %d: %+v", i, f)
		}
	}
	if !strings.Contains(r.out, `\"member\" in the payload is a Map, of which JSON would not keep the content`) {
		t.Error(r.out)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	want := []string{
		`{"to":"bob^talk","payload":{"date":"1970-01-01T00:00:00.000Z","url":"http://a/b","quote":{"price":17},"money":{"euro":3,"absent":null},"none":null,"no":{},"text":"text","list":[1,"ü",null,[]],"bytes":[1,2],"__proto__x":1}}`,
		`{"to":"bob^talk","payload":{"euro":4,"absent":null},"message_type":"t"}`,
	}
	for i := range b.acks {
		b.acks[i] = strings.TrimPrefix(b.acks[i], "/api/v1/messages ")
	}
	if !slices.Equal(b.acks, want) {
		t.Errorf("sent\n%s\nwant\n%s", strings.Join(b.acks, "\n"), strings.Join(want, "\n"))
	}
}

// A question that is asked again with its key has the same answer, even after the loop of this process has
// handled that. A timeout of 0 gives the answer that is there.
func TestJavaScriptAsksAgain(t *testing.T) {
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	l := s.start(p.asAlice, `
const again = (timeout) => relay.ask("bob^talk", {}, { timeout, idempotencyKey: "k" });
say({ asked: (await again(0).catch((e) => e)).messageId });
for await (const m of relay.listen({ signal: stop.signal })) {
  await m.ack();
  say({ same: [(await again(60_000)).id === m.id, (await again(0)).id === m.id] });
}`)
	p.answer(l.await(l.stdout, `"asked":"(\w+)"`)[1], `{}`)
	l.await(l.stdout, `"same":\[true,true\]`)
	l.kill()
}
