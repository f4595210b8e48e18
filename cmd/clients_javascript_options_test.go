package cmd_test

import (
	"regexp"
	"strings"
	"testing"
)

// refusals runs calls of the client next to a relay that takes everything. Each must throw a TypeError
// with a text that matches, and nothing may have been sent.
func (s *scripts) refusals(calls [][2]string) {
	s.t.Helper()
	b := newBadRelay(s.t)
	var program strings.Builder
	for _, call := range calls {
		program.WriteString("say(await fails((async () => " + call[0] + ")()));\n")
	}
	r := s.run([]string{"RELAY_URL=" + b.URL, "RELAY_KEY=mk_x"}, program.String()).wantCode(s.t, 0)
	said := linesOf[struct{ Name, Message string }](s.t, r.out)
	if len(said) != len(calls) {
		s.t.Fatalf("%d calls, and the program says\n%s", len(calls), r.out)
	}
	for i, call := range calls {
		if f := said[i]; f.Name != "TypeError" || !regexp.MustCompile(call[1]).MatchString(f.Message) {
			s.t.Errorf("%.200s: %s %q, want a TypeError with %s", call[0], f.Name, f.Message, call[1])
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.acks) > 0 {
		s.t.Errorf("the relay was told %.500s", b.acks)
	}
}

// A negative breaker is none, as in the other languages: every message is given out.
func TestJavaScriptListensWithoutABreaker(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	question := p.send(p.alice, "bob^talk", `{}`)
	l := s.start(p.asBob, `
for await (const m of relay.listen({ breaker: -1, signal: stop.signal })) await m.handle(() => m.reply({}).then(() => say({ given: m.id })));`)
	p.awaitStatus(question.MessageID, "completed")
	l.await(l.stdout, question.MessageID)
	l.kill()
	var calls [][2]string
	for _, wrong := range []string{"NaN", `"x"`, "null", "1.5", "Infinity", `"30"`} {
		calls = append(calls, [2]string{"relay.listen({ breaker: " + wrong + " }).return()", "breaker is a whole number"})
	}
	s.refusals(calls)
}

// The timeout of send, ask and reply is a time; 0 tries once, and Infinity is for send and reply.
func TestJavaScriptTimeouts(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	s.patient()
	var calls [][2]string
	for _, wrong := range []string{"NaN", `"x"`, "null", "-1", `"5"`} {
		calls = append(calls, [2]string{`relay.send("bob^talk", {}, { timeout: ` + wrong + ` })`, "timeout is in milliseconds, 0 or more"},
			[2]string{`relay.ask("bob^talk", {}, { timeout: ` + wrong + ` })`, "timeout is in milliseconds, 0 or more and at most"})
	}
	s.refusals(append(calls, [2]string{`relay.ask("bob^talk", {}, { timeout: Infinity })`, "at most 82800000"}))
	f := newTroubled(t, p.server, isSend, always(says(""))...)
	r := s.run(append(p.aliceEnv(f.url), "DIRECT="+p.url), `
say(await fails(relay.send("bob^talk", {}, { timeout: 0 })));
say(await fails(relay.ask("bob^talk", {}, { timeout: 0 })));
const direct = new Relay({ url: process.env.DIRECT });
say((await direct.send("bob^talk", {}, { timeout: Infinity })).messageId.slice(0, 4));
say((await direct.send("bob^talk", {}, { timeout: 0 })).messageId.slice(0, 4));
say(await fails(direct.ask("bob^talk", {}, { timeout: 0 })));`).wantCode(t, 0)
	var codes []string
	for _, m := range regexp.MustCompile(`"code":"(\w+)"|"msg_"`).FindAllStringSubmatch(r.out, -1) {
		codes = append(codes, m[1])
	}
	if got := strings.Join(codes, " "); got != "unreachable unreachable   no_answer never_connected" || f.met != 2 {
		t.Errorf("%s, %d requests\n%s", got, f.met, r.out)
	}
}

// An option that a method does not know is refused, with the option that was probably meant.
func TestJavaScriptRefusesUnknownOptions(t *testing.T) {
	notQuick(t)
	t.Parallel()
	mustScript(t).refusals([][2]string{
		{`relay.send("bob^talk", {}, { timeOut: 5 })`, "^send has no option timeOut: did you mean timeout\\?"},
		{`relay.send("bob^talk", {}, { conversation_id: "c" })`, "^send has no option conversation_id: did you mean conversation\\?"},
		{`relay.send("bob^talk", {}, { conversationId: "c" })`, "did you mean conversation\\?"},
		{`relay.send("bob^talk", {}, { idempotency_key: "k" })`, "did you mean idempotencyKey\\?"},
		{`relay.send("bob^talk", {}, { in_reply_to: "m" })`, "did you mean inReplyTo\\?"},
		{`relay.send("bob^talk", {}, { ack: false })`, "^send has no option ack: did you mean ackBy"},
		{`relay.send("bob^talk", {}, { colour: "red" })`, "^send has no option colour; it has .*timeout"},
		{`relay.send("bob^talk", {}, null)`, "the options of send are an object"},
		{`relay.send("bob^talk", {}, 60_000)`, "the options of send are an object"},
		{`relay.ask("bob^talk", {}, { timout: 5 })`, "^ask has no option timout: did you mean timeout\\?"},
		{`relay.ask("bob^talk", {}, { breaker: 5 })`, "^ask has no option breaker; it has "},
		{`relay.listen({ breakr: 5 }).return()`, "^listen has no option breakr: did you mean breaker\\?"},
		{`relay.listen({ timeout: 5 }).return()`, "^listen has no option timeout; it has "},
		{`relay.find("flights", { onlin: true })`, "^find has no option onlin: did you mean online\\?"},
		{`relay.history("conv_1", { max: 5 })`, "^history has no option max; it has limit"},
		{`relay.sign("GET", "/", "", { Nonce: "n" })`, "^sign has no option Nonce: did you mean nonce\\?"},
		{`new Relay({ keyfile: "k" })`, "^Relay has no option keyfile: did you mean keyFile\\?"},
	})
}

// What cannot be sent is refused with a sentence that names it.
func TestJavaScriptRefusesWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	const deep = `(() => { let deep = {}; for (let i = 0; i < 100_000; i++) deep = { deep }; return deep; })()`
	mustScript(t).refusals([][2]string{
		{`relay.send("bob^talk", ` + deep + `)`, "^the payload cannot be written as JSON: it is nested too deeply, or too large"},
		{`relay.ask("bob^talk", ` + deep + `)`, "^the payload cannot be written as JSON"},
		{`relay.send(undefined, {})`, "^to is the address of a Mecha, as a text"},
		{`relay.ask(null, {})`, "^to is the address of a Mecha, as a text"},
		{`relay.send(17, {})`, "^to is the address of a Mecha, as a text"},
		{`relay.send("bob^talk", {}, { idempotencyKey: "" })`, "idempotencyKey"},
		{`relay.send("bob^talk", {}, { idempotencyKey: null })`, "idempotencyKey"},
		{`relay.ask("bob^talk", {}, { idempotencyKey: 17 })`, "idempotencyKey"},
	})
}
