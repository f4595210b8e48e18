package cmd_test

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// quicker writes the client with other constants.
func (s *scripts) quicker(name string, constants map[string]string) {
	s.t.Helper()
	text := mustRelay(s.t, "client", "js")
	for constant, value := range constants {
		re := regexp.MustCompile(`(?m)^const ` + constant + ` = [^;]*;`)
		if len(re.FindAllString(text, -1)) != 1 {
			s.t.Fatalf("the client has no constant %s", constant)
		}
		text = re.ReplaceAllString(text, "const "+constant+" = "+value+";")
	}
	s.write(name, text)
}

// patient returns the client more time than its 2 s for a question, and its 5 s for the reason why
// there is no answer.
func (s *scripts) patient() {
	s.t.Helper()
	s.quicker("relay.mjs", map[string]string{"sendSlack": "60 * second", "noAnswerSlack": "60 * second"})
}

// mute is a network that can fall silent: connections stay, and nothing passes.
type mute struct {
	url    string
	mu     sync.Mutex
	silent map[net.Conn]bool
}

func newMute(t testing.TB, s *server) *mute {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mute{url: "http://" + l.Addr().String(), silent: map[net.Conn]bool{}}
	pass := func(to, from, key net.Conn) {
		defer to.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			m.mu.Lock()
			drop := m.silent[key]
			m.mu.Unlock()
			if !drop {
				to.Write(b[:n])
			}
		}
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				in.Close()
				continue
			}
			m.mu.Lock()
			m.silent[in] = false
			m.mu.Unlock()
			go pass(out, in, in)
			go pass(in, out, in)
		}
	}()
	t.Cleanup(func() { l.Close(); m.fall(io.Closer.Close) })
	return m
}

// fall silences the connections that there are.
func (m *mute) fall(and func(io.Closer) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.silent {
		m.silent[c] = true
		and(c)
	}
}

// A connection that is dead without having been closed, as after a sleep of the machine, is
// noticed: by pings, and in a browser by a look into the inbox.
func TestJavaScriptNoticesASilentConnection(t *testing.T) {
	notQuick(t)
	notShort(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	s.quicker("quick.mjs", map[string]string{"heartbeat": "500", "lookPause": "500"})
	for _, browser := range []bool{false, true} {
		m := newMute(t, p.server)
		file := s.write(fmt.Sprintf("silent%v.mjs", browser), fmt.Sprintf(`
const { env } = process;
if (%v) globalThis.process = undefined;
if (!globalThis.process && typeof WebSocket !== "function") {
  console.log("no WebSocket");
} else {
  const { Relay } = await import("./quick.mjs");
  for await (const m of new Relay({ url: env.RELAY_URL, key: env.RELAY_KEY }).listen()) {
    console.log(m.id);
    await m.ack();
  }
}`, browser))
		l := launch(t, s.program(file), p.bobEnv(m.url))
		first := p.send(p.alice, "bob^talk", `{}`)
		if l.await(l.stdout, first.MessageID+"|no WebSocket")[0] == "no WebSocket" {
			continue
		}
		p.awaitStatus(first.MessageID, "completed")
		m.fall(func(io.Closer) error { return nil })
		second := p.send(p.alice, "bob^talk", `{}`)
		l.await(l.stdout, second.MessageID)
		l.kill()
	}
}

// A listener that works slowly keeps a bounded number of messages, and gets them all, in order.
func TestJavaScriptIsNotFlooded(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	s.quicker("narrow.mjs", map[string]string{"queuedMessages": "20"})
	file := s.write("flooded.mjs", `
import { Relay } from "./narrow.mjs";
for await (const m of new Relay({ log: null }).listen()) {
  if (m.payload.n === 0) {
    console.log("waiting");
    while ((await new Relay().inbox()).pending < 101) await new Promise((r) => setTimeout(r, 20));
  }
  console.log(m.payload.n);
  await m.ack();
}`)
	l := launch(t, s.program(file), p.bobEnv(p.url))
	p.send(p.alice, "bob^talk", `{"n":0}`)
	l.await(l.stdout, "waiting")
	want, last := "waiting\n0\n", ""
	for n := range 100 {
		last = p.send(p.alice, "bob^talk", fmt.Sprintf(`{"n":%d}`, n+1)).MessageID
		want += fmt.Sprintln(n + 1)
	}
	l.await(l.stdout, `(?m)^100$`)
	if got := l.stdout.String(); got != want {
		t.Errorf("%s", got)
	}
	if pushes := p.pushed(last); pushes < 2 {
		t.Errorf("the last message was pushed %d times: the listener has not hung up", pushes)
	}
	l.kill()
}

// A payload of the largest size that the relay takes.
func TestJavaScriptTakesLargePayloads(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	r := s.run(p.asAlice, `
const text = "ü".repeat(520_000);
await relay.send("alice^talk", { text });
say(await fails(relay.send("alice^talk", { text: text + text })));
for await (const m of relay.listen()) {
  await m.ack();
  say({ same: m.payload.text === text });
  break;
}`)
	r.wantCode(t, 0)
	got := linesOf[struct {
		Code string
		Same bool
	}](t, r.out)
	if len(got) != 2 || got[0].Code != "payload_too_large" || !got[1].Same {
		t.Errorf("%+v", got)
	}
}

// The types name what the client has, and no more.
func TestTheTypesOfJavaScriptAreItsOwn(t *testing.T) {
	t.Parallel()
	s, types := mustScript(t), mustRelay(t, "client", "ts")
	r := s.run([]string{"RELAY_KEY=mk_x"}, `
const all = await import("./relay.mjs");
const names = (c) => Object.getOwnPropertyNames(c.prototype).filter((n) => n !== "constructor");
const hidden = { Message: ["passed"] };
for (const [name, value] of Object.entries(all)) {
  const members = typeof value === "function" ? names(value).filter((n) => !(hidden[name] ?? []).includes(n)) : [];
  say({ name, members: members.sort() });
}`)
	r.wantCode(t, 0)
	exported := map[string][]string{}
	for _, e := range linesOf[struct {
		Name    string
		Members []string
	}](t, r.out) {
		exported[e.Name] = e.Members
	}
	declared := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?ms)^export declare (class|const) (\w+)(.*?\n\}|: string;)$`).FindAllStringSubmatch(types, -1) {
		declared[m[2]] = true
		members := []string{}
		for _, f := range regexp.MustCompile(`(?m)^  (?:get )?(\w+)(?:<T>)?\(|^  readonly (signal): AbortSignal`).FindAllStringSubmatch(m[3], -1) {
			if name := f[1] + f[2]; name != "constructor" {
				members = append(members, name)
			}
		}
		slices.Sort(members)
		has, exists := exported[m[2]]
		if m[2] == "Unreachable" {
			has = slices.DeleteFunc(has, func(n string) bool { return n == "temporary" }) // of its parent
		}
		if !exists || m[1] == "class" && !slices.Equal(members, has) {
			t.Errorf("%s is declared with %v, and has %v", m[2], members, has)
		}
	}
	if len(declared) != len(exported) {
		t.Errorf("declared %v, exported %v", declared, exported)
	}
	if tsc, err := exec.LookPath("tsc"); err == nil {
		file := s.write("relay.d.mts", types)
		if out, err := exec.Command(tsc, "--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom", file).CombinedOutput(); err != nil {
			t.Errorf("%s", out)
		}
	}
}
