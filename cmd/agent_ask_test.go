package cmd_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"relay/db/scratch"
	"relay/http/docs"
)

func TestAskAndReply(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "sed")
	p := newPair(t)

	// A person answers. Earlier messages, and answers to other questions, are not taken for the answer.
	ask := launchHere(t, []string{"ask", "bob^talk", `{"q":1}`, "--timeout", "1m", "--correlation-id", "c 1", "--max-messages", "3"}, p.asAlice)
	id := ask.await(ask.stderr, `sent (msg_\w+)\n`)[1]
	question := p.record(p.alice, id)
	p.send(p.bob, "alice^talk", `{"unrelated":true}`)
	does(t, p.asBob, "send", "alice^talk", `{"wrong":true}`, "--conversation", question.ConversationID, "--correlation-id", "c 2").wantCode(t, 0)
	r := does(t, p.asBob, "reply", id, `{ "a": 1.50 }`).wantCode(t, 0)
	if code := ask.wait(); code != 0 || ask.stdout.String() != "{ \"a\": 1.50 }\n" {
		t.Errorf("exit %d: %s%s", code, ask.stdout, ask.stderr)
	}
	answer := p.record(p.alice, r.out)
	if answer.status() != "completed" || answer.MessageType != "reply" || answer.CorrelationID != "c 1" || answer.InReplyTo != id || answer.ConversationID != question.ConversationID {
		t.Errorf("%+v", answer)
	}
	does(t, p.asBob, "reply", id, `{}`).wantCode(t, 1, "conversation_full")
	does(t, p.asAlice, "reply", id, `{}`).wantCode(t, 2, "relay send bob^talk --in-reply-to "+id)
	does(t, p.asBob, "reply", "msg_x", `{}`).wantCode(t, 1, "message_not_found")
	does(t, p.asBob, "reply", id, `[]`).wantCode(t, 2, "must be a JSON object")

	// Nobody answers: exit code 3. The same command keeps waiting for the same message.
	args := []string{"ask", "bob^talk", `{"q":2}`, "--idempotency-key", "k", "--timeout", "5s", "--json"}
	eventually(t, patience, "the reason is there", func() bool { // the machine may be too slow for the 2 s in which ask looks for it
		r = does(t, p.asAlice, args...).wantCode(t, 3, "no answer to msg_", "within 5s", `"exit":3`)
		return strings.Contains(r.err, "within 5s. bob^talk was last seen at ")
	})
	id = strings.Fields(r.err)[1]
	does(t, p.asBob, "deliver", id).wantCode(t, 0, "")
	does(t, p.asBob, "reply", id, `{"late":true}`, "--type", "note").wantCode(t, 0)
	r = does(t, p.asAlice, append(args, "--timeout", "1m")...).wantCode(t, 0, "sent "+id)
	if e := parse[fullRecord](t, []byte(r.out)); e.InReplyTo != id || string(e.Payload) != `{"late":true}` || e.MessageType != "note" {
		t.Errorf("%s", r.out)
	}

	// A listener answers, but not what is an answer itself.
	p.listen("--exec", `sed 's/question/answer to/'`, "--reply", "--max-replies", "0")
	does(t, p.asAlice, "ask", "bob^talk", `{}`, "--type", "reply", "--timeout", "1s").wantCode(t, 3)
	r = does(t, p.asAlice, "ask", "bob^talk", `{"question":"how are you?"}`, "--no-ack").wantCode(t, 0)
	if r.out != `{"answer to":"how are you?"}`+"\n" {
		t.Errorf("%q", r.out)
	}
	for _, wrong := range []string{"--timeout 0s", "--timeout -1s", "--timeout 24h", "--ack-by 500ms", "--max-messages -1"} {
		does(t, p.asAlice, append([]string{"ask", "bob^talk", "{}"}, strings.Fields(wrong)...)...).wantCode(t, 2)
	}
}

func TestAskSaysWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	tool(t, "sh")
	p := newPair(t)
	p.listen("--exec", `echo "no seats left" >&2; exit 1`, "--reply")
	does(t, p.asAlice, "ask", "bob^talk", `{}`).wantCode(t, 1, "failed: no seats left")
	does(t, p.asAlice, "ask", "alice^talk", `{}`, "--ttl", "1s").wantCode(t, 1, "expired")
}

// Many programs ask at once, and each gets the answer to its own question.
func TestManyAsk(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "cat")
	p := newPair(t)
	p.listen("--exec", "cat", "--reply", "--jobs", "8", "--max-replies", "0")
	many := 6
	if scratch.Long(t) {
		many = 100
	}
	var asking sync.WaitGroup
	for i := range many {
		asking.Go(func() {
			payload := fmt.Sprintf(`{"n":%d}`, i)
			args := []string{"ask", "bob^talk", payload, "--timeout", "1m", "--json"}
			if i%2 == 1 {
				args = append(args, "--conversation", "everybody")
			}
			r := does(t, p.asAlice, args...)
			if r.code != 0 || string(parse[fullRecord](t, []byte(r.out)).Payload) != payload {
				t.Errorf("exit %d: %s got %s%s", r.code, payload, r.out, r.err)
			}
		})
	}
	asking.Wait()
}

// twoThatAnswerEverything starts two listeners whose answers the other takes for questions,
// lets alice ask, and returns when bob's answer or hers is refused.
func twoThatAnswerEverything(t *testing.T, ofBob, ofAlice []string, send ...string) (p *pair, first fullRecord, bob, alice *server) {
	t.Helper()
	tool(t, "sh", "cat")
	p = newPair(t)
	bob = p.listen(append([]string{"--exec", "cat", "--reply", "--reply-type", "ping"}, ofBob...)...)
	alice = launchHere(t, append([]string{"listen", "--exec", "cat", "--reply", "--reply-type", "pong"}, ofAlice...), p.asAlice)
	alice.await(alice.stderr, `listening as alice\^talk`)
	r := does(t, p.asAlice, append([]string{"send", "bob^talk", `{}`}, send...)...).wantCode(t, 0)
	return p, p.record(p.alice, r.out), bob, alice
}

func (p *pair) conversation(id string) []fullRecord {
	p.t.Helper()
	body := p.ask(p.alice, "GET", "/api/v1/conversations/"+id+"/messages?limit=1000", "").want(p.t, 200)
	return parse[struct{ Messages []fullRecord }](p.t, body).Messages
}

func TestTwoThatAnswerEverythingAreStoppedByMaxMessages(t *testing.T) {
	t.Parallel()
	p, first, bob, alice := twoThatAnswerEverything(t, nil, nil, "--max-messages", "12")
	// The twelfth message is alice's to bob if the first was; it is not answered.
	alice.await(alice.stderr, "the answer was refused: .*conversation_full")
	all := p.conversation(first.ConversationID)
	if len(all) != 12 {
		t.Fatalf("%d messages", len(all))
	}
	for n, m := range all[1:] {
		if m.InReplyTo != all[n].MessageID {
			t.Errorf("message %d answers %s, want %s", n+1, m.InReplyTo, all[n].MessageID)
		}
	}
	eventually(t, patience, "the last message is refused", func() bool { return p.record(p.bob, all[11].MessageID).status() == "failed" })
	if docs.Has("inspect") {
		trace := mustRelay(t, "message", "trace", first.MessageID, "--db", p.db)
		if !strings.Contains(trace, "conversation full") || !strings.Contains(trace, "its founder was told") {
			t.Error(trace)
		}
	}
	bob.interrupt()
	alice.interrupt()
}

func TestTwoThatAnswerEverythingAreStoppedByTheBreaker(t *testing.T) {
	t.Parallel()
	p, first, bob, alice := twoThatAnswerEverything(t, []string{"--max-replies", "5"}, nil)
	bob.await(bob.stderr, `msg_\w+ failed: not answered: this conversation has had 5 answers in 10m0s`)
	all := p.conversation(first.ConversationID)
	if len(all) != 11 { // alice's question, five answers of bob, five of hers
		t.Fatalf("%d messages", len(all))
	}
	if m := p.awaitStatus(all[10].MessageID, "failed"); !strings.Contains(m.Ack.Detail, "--max-replies") {
		t.Errorf("%+v", m.Ack)
	}
	// Other conversations continue, and so do messages that want no answer.
	other := p.send(p.alice, "bob^talk", `{}`)
	p.awaitStatus(other.MessageID, "completed")
	r := does(t, p.asAlice, "send", "bob^talk", `{}`, "--conversation", first.ConversationID, "--type", "ping", "--wait-ack", "1m").wantCode(t, 0)
	if m := p.record(p.bob, r.out); m.status() != "completed" {
		t.Errorf("%+v", m)
	}
	alice.interrupt()
	bob.interrupt()
}

// A question that failed, or whose answer is late, is found and reported in words.
func TestDeadAndOverdueMessages(t *testing.T) {
	if !docs.Has("inspect") {
		t.Skip("it is relay message that finds them")
	}
	t.Parallel()
	p := newPair(t)
	send := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(does(t, p.asAlice, append([]string{"send", "bob^talk", `{}`}, args...)...).wantCode(t, 0).out)
	}
	first := send()
	late := send("--ack-by", "1s", "--in-reply-to", first)
	failed, expired := send(), send("--ttl", "1s")
	p.ackAs(p.bob, failed, "failed", "no")
	if m := p.record(p.alice, late); m.InReplyTo != first || m.AckBy == "" {
		t.Errorf("%+v", m)
	}
	list := func(args ...string) string {
		return mustRelay(t, append([]string{"message", "list", "--db", p.db}, args...)...)
	}
	eventually(t, patience, "a message is late, and one has expired", func() bool {
		return strings.Contains(list("--overdue"), "queued, overdue") && strings.Contains(list("--dead"), expired)
	})
	if out := list("--overdue"); strings.Count(out, "msg_") != 1 || !strings.Contains(out, late) {
		t.Error(out)
	}
	if out := list("--dead"); strings.Count(out, "msg_") != 2 || !strings.Contains(out, failed) {
		t.Error(out)
	}
	runRelay(t, "message", "list", "--dead", "--overdue", "--db", p.db).wantCode(t, 2, "only one of")
	runRelay(t, "message", "list", "--dead", "--state", "queued", "--db", p.db).wantCode(t, 2, "only one of")
	list("--dead", "--state", "dead")
	trace := func(args ...string) string {
		return mustRelay(t, append([]string{"message", "trace", late, "--db", p.db}, args...)...)
	}
	eventually(t, patience, "the sender was told", func() bool { return strings.Contains(trace(), "the sender was told") })
	for _, says := range []string{"overdue", "not acknowledged by ", "in reply to " + first, "still queued and overdue"} {
		if !strings.Contains(trace(), says) {
			t.Errorf("no %q in\n%s", says, trace())
		}
	}
	if out := trace("--json"); !strings.Contains(out, `"event":"overdue"`) {
		t.Error(out)
	}
}

// tail says in words what the relay tells senders.
func TestTailShowsNotices(t *testing.T) {
	if !docs.Has("inspect") {
		t.Skip("there is no relay message tail")
	}
	t.Parallel()
	p := newPair(t)
	tail := launchHere(t, []string{"message", "tail", "--db", p.db}, nil)
	eventually(t, patience, "tail prints", func() bool {
		p.send(p.alice, "bob^talk", `{}`)
		return strings.Contains(tail.stdout.String(), "accepted")
	})
	late := strings.TrimSpace(does(t, p.asAlice, "send", "bob^talk", `{}`, "--ack-by", "1s", "--max-messages", "1").wantCode(t, 0).out)
	does(t, p.asAlice, "send", "bob^talk", `{}`, "--in-reply-to", late).wantCode(t, 1, "conversation_full")
	tail.await(tail.stdout, "conversation full  "+late+` .*its founder was told\n`)
	tail.await(tail.stdout, "overdue +"+late+` .*not acknowledged by .*; the sender was told\n`)
}

// relay ask gets its answer also if another process of the same Mecha works on what comes.
func TestAskBesideAWorkerOfTheSameMecha(t *testing.T) {
	t.Parallel()
	tool(t, "sh", "cat", "touch")
	p := newPair(t)
	ran := filepath.Join(t.TempDir(), "ran")
	worker := launchHere(t, []string{"listen", "--claim", "--exec", "touch '" + ran + "'"}, p.asAlice)
	worker.await(worker.stderr, "claiming as")
	other := p.listen("--exec", "cat", "--reply")
	for range 5 {
		if got := does(t, p.asAlice, "ask", "bob^talk", `{"q":1}`).wantCode(t, 0); strings.TrimSpace(got.out) != `{"q":1}` {
			t.Errorf("%+v", got)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the worker has worked on an answer")
	}
	p.awaitStatus(p.send(p.bob, "alice^talk", `{}`).MessageID, "completed") // it works on other messages
	if _, err := os.Stat(ran); err != nil {
		t.Error(err)
	}
	other.interrupt()
	worker.interrupt()
}

// A relay that takes the request and does not answer: it is not known whether the message was sent.
func TestAskOfASilentRelay(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	env := []string{"RELAY_URL=http://" + l.Addr().String(), "RELAY_KEY=mk_x"}
	for _, retry := range []string{"10s", "0"} {
		does(t, env, "ask", "bob^talk", `{}`, "--timeout", "2s", "--retry", retry).wantCode(t, 3, "does not answer in time", "Whether the message was sent is not known")
	}
}
