package cmd_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// What fails has a class, a code and the facts to act on.
func TestJavaScriptErrors(t *testing.T) {
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	s.patient()
	r := s.run(p.asAlice, `
say(await fails(relay.send("bbo^talk", { n: 1 })));
say(await fails(relay.send("bob^talk", "text")));
say(await fails(relay.ask("bob^talk", { n: 1 }, { timeout: 1000 })));
const only = await relay.send("bob^talk", { n: 1 }, { maxMessages: 1 });
say(await fails(relay.send("bob^talk", { n: 2 }, { conversation: only.conversationId })));
say(await fails(new Relay({ url: "http://127.0.0.1:1" }).send("bob^talk", {}, { timeout: 100 })));
say(await fails(new Relay({ key: "mk_xAy6qRPZf7GxoHrijCLeU5MsO16U6zmbxpVXPpAIUrm42zWul" }).listen().next()));
say(await fails(relay.message("msg_../whoami?#")));
say(await fails(relay.send("bob^talk", { n: 1 }, { maxMessages: -1 })));
const again = await relay.send("bob^talk", { n: 3 }, { idempotencyKey: "k" });
say({ same: (await relay.send("bob^talk", { n: 3 }, { idempotencyKey: "k" })).messageId === again.messageId });
say(await fails(relay.send("bob^talk", { n: 4 }, { idempotencyKey: "k" })));
say(await fails(new Promise(() => new Relay({ key: " " }))));`)
	r.wantCode(t, 0)
	type failed struct {
		Name, Code, Detail, RequestID, Message string
		Status                                 int
		DidYouMean                             []string
		Temporary                              bool
		Verdict                                *struct{ Code string }
		Same                                   bool
	}
	got := linesOf[failed](t, r.out)
	want := []failed{
		{Name: "RelayError", Code: "recipient_not_found", Status: 404}, {Name: "TypeError"}, {Name: "NoAnswer", Code: "no_answer"},
		{Name: "RelayError", Code: "conversation_full", Status: 429}, {Name: "Unreachable", Code: "unreachable", Temporary: true}, {Name: "RelayError", Code: "unknown_key", Status: 401},
		{Name: "RelayError", Code: "not_found", Status: 404}, {Name: "RelayError", Code: "invalid_request", Status: 400}, {Same: true},
		{Name: "RelayError", Code: "idempotency_key_reused", Status: 422}, {Name: "TypeError"},
	}
	if len(got) != len(want) {
		t.Fatalf("%s", r.out)
	}
	for i, w := range want {
		if g := got[i]; g.Name != w.Name || g.Code != w.Code || g.Status != w.Status || g.Temporary != w.Temporary || g.Same != w.Same {
			t.Errorf("number %d is %+v, want %+v", i, g, w)
		}
	}
	if g := got[0]; !slices.Equal(g.DidYouMean, []string{"bob^talk"}) || g.RequestID == "" || !strings.Contains(g.Message, "did you mean bob^talk?") {
		t.Errorf("%+v", g)
	}
	if g := got[2]; g.Verdict == nil || g.Verdict.Code != "never_connected" || !strings.Contains(g.Message, "no answer to msg_") {
		t.Errorf("%+v", g)
	}
}

// A question that is refused, or expires, is given up at once. A question that an earlier run has answered is not answered again.
func TestJavaScriptQuestionsThatFail(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	s.patient()
	l := s.start(p.asBob, `
import { createHash } from "node:crypto";
for await (const m of relay.listen({ signal: stop.signal })) {
  if (m.payload.what === "reject") await m.ack("rejected", "not for me");
  if (m.payload.what === "fail") await m.handle(() => { throw new Error("no seats " + "ü".repeat(2000)); });
  if (m.payload.what === "twice") {
    const first = await m.reply({ n: 1 }, { idempotencyKey: undefined });
    const body = JSON.stringify({ to: m.sender, payload: { n: 1 }, message_type: "reply", correlation_id: m.correlationId || undefined, in_reply_to: m.id });
    const key = "reply-" + m.id + "-" + createHash("sha256").update(body).digest("hex").slice(0, 16) + "-1";
    const again = await new Relay().send(m.sender, { n: 1 }, { type: "reply", inReplyTo: m.id, idempotencyKey: key });
    await m.handle(() => say({ same: first.messageId === again.messageId }));
  }
}`)
	r := s.run(p.asAlice, `
for (const what of ["reject", "fail"]) say(await fails(relay.ask("bob^talk", { what }, { timeout: 60_000 })));
say(await fails(relay.ask("alice^talk", { what: "" }, { timeout: 60_000, ttl: 1000 })));
const answer = await relay.ask("bob^talk", { what: "twice" });
say({ code: (await relay.message(answer.id)).ack.status, detail: answer.type, signed: answer.signed });`)
	r.wantCode(t, 0)
	got := linesOf[struct {
		Code, Detail string
		Verdict      struct{ Code string }
	}](t, r.out)
	if len(got) != 4 || got[0].Verdict.Code != "rejected" || !strings.Contains(got[0].Detail, "not for me") || got[1].Verdict.Code != "failed" || !strings.Contains(got[1].Detail, "no seats ü") ||
		!strings.Contains(got[1].Detail, "ü…") || got[2].Verdict.Code != "expired" || got[2].Code != "no_answer" || got[3].Code != "completed" || got[3].Detail != "reply" {
		t.Errorf("%+v", got)
	}
	l.await(l.stdout, `"same":true`)
	l.terminate()
}

// A listener keeps its place in a file, and one whose key is revoked ends.
func TestJavaScriptKeepsItsPlace(t *testing.T) {
	notQuick(t)
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	const listen = `
for await (const m of relay.listen({ state: process.env.STATE_FILE, signal: stop.signal })) say({ id: m.id, text: await m.text() });`
	env := append(p.asBob, "STATE_FILE="+filepath.Join(s.dir, "place.json"))
	var sent []string
	for round := range 2 {
		for i := range 3 {
			sent = append(sent, p.send(p.alice, "bob^talk", fmt.Sprintf(`{ "n": 1%d.0000000000000000001 }`, i)).MessageID)
		}
		l := s.start(env, listen)
		l.await(l.stdout, sent[len(sent)-1])
		if code := l.terminate(); code != 0 {
			t.Errorf("exit %d\n%s", code, l.stderr)
		}
		got := linesOf[struct{ ID, Text string }](t, l.stdout.String())
		for i, g := range got {
			if len(got) != 3 || g.ID != sent[3*round+i] || g.Text != fmt.Sprintf(`{ "n": 1%d.0000000000000000001 }`, i) {
				t.Errorf("round %d: %+v, want %v", round, got, sent)
			}
		}
	}
	s.run(append(p.asAlice, env[len(env)-1]), listen).wantCode(t, 1, "says where bob^talk stopped")
	l := s.start(p.asBob, `
try { for await (const m of relay.listen()) say({ id: m.id }); } catch (e) { say({ code: e.code }); }`)
	l.await(l.stdout, sent[5])
	mustRelay(t, "key", "revoke", p.bob.KeyID, "--db", p.db)
	l.await(l.stdout, `"code":"key_revoked"`)
	l.wait()
}

// Where WebSockets do not get through, a listener asks for messages.
func TestJavaScriptPolls(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, p := mustScript(t), newPair(t)
	target, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ErrorLog = log.New(io.Discard, "", 0)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			http.Error(w, "no upgrades here", http.StatusBadRequest)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	l := launch(t, s.program(filepath.Join(s.dir, "example.mjs"), "worker"), p.bobEnv(proxy.URL))
	l.await(l.stderr, "no upgrades here")
	r := finish(t, s.program(filepath.Join(s.dir, "example.mjs"), "asker", "30"), append(p.aliceEnv(proxy.URL), "RELAY_TO=bob^talk"), "")
	r.wantCode(t, 0)
	if n := strings.Count(r.out, "\n"); n != 30 || p.count(p.alice) != 30 {
		t.Errorf("%d lines, %d answers", n, p.count(p.alice))
	}
	l.kill()
}

// The certificate of a relay is trusted by a file, by requests and by sockets.
func TestJavaScriptOverTLS(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, ca, db := mustScript(t), newAuthority(t), tempDB(t)
	keys := issue(t, db, "alice^tls", "bob^tls")
	relay := ca.startTLS(t, t.TempDir(), db)
	as := func(a agent, more ...string) []string {
		return append(more, "RELAY_URL="+relay.url, "RELAY_KEY="+a.Key)
	}
	l := launch(t, s.program(filepath.Join(s.dir, "example.mjs"), "worker"), as(keys[1], "RELAY_CA_FILE="+ca.file))
	r := finish(t, s.program(filepath.Join(s.dir, "example.mjs"), "asker", "20"), as(keys[0], "RELAY_CA_FILE="+ca.file, "RELAY_TO=bob^tls"), "")
	r.wantCode(t, 0)
	if n := strings.Count(r.out, "\n"); n != 20 || l.stderr.String() != "" {
		t.Errorf("%d lines\n%s", n, l.stderr)
	}
	l.kill()
	r = s.run(as(keys[0]), `say(await fails(relay.send("bob^tls", {}))); say(await fails(relay.listen().next()));
say(await fails(new Relay({ url: process.env.RELAY_URL.replace("https:", "http:") }).send("bob^tls", {})));`)
	r.wantCode(t, 0)
	got := linesOf[struct {
		Name, Detail string
		Temporary    bool
	}](t, r.out)
	if len(got) != 3 || got[0].Name != "Unreachable" || got[0].Temporary || got[1].Name != "Unreachable" || got[1].Temporary || got[2].Name != "RelayError" || !strings.Contains(got[2].Detail, "HTTPS") {
		t.Errorf("%+v", got)
	}
}

// badRelay is a server that is not a relay: it says what a test wants on each socket.
type badRelay struct {
	*httptest.Server
	t       testing.TB
	sockets chan net.Conn // on which the handshake was answered
	mu      sync.Mutex
	refuse  []func(http.ResponseWriter) // the next answers to other requests
	acks    []string                    // paths and bodies of acks and messages
	state   string                      // of each message, as records say
	looked  int                         // how many records were read
}

func newBadRelay(t testing.TB) *badRelay {
	t.Helper()
	b := &badRelay{t: t, sockets: make(chan net.Conn)}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(func() { b.CloseClientConnections(); b.Close() })
	return b
}

func (b *badRelay) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/whoami"):
		fmt.Fprint(w, `{"mecha_id":"bob^talk"}`)
	case r.Header.Get("Upgrade") == "websocket":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", acceptKey(r.Header.Get("Sec-WebSocket-Key")))
		go func() { b.sockets <- conn }()
	case strings.HasPrefix(r.URL.Path, "/api/v1/messages/") && r.Method == http.MethodGet:
		fmt.Fprintf(w, `{"state":%q}`, b.state)
		b.looked++
	case len(b.refuse) > 0:
		refuse := b.refuse[0]
		b.refuse = b.refuse[1:]
		refuse(w)
	default:
		b.acks = append(b.acks, r.URL.EscapedPath()+" "+string(body))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"message_id":"msg_1","conversation_id":"conv_1","created_at":"2026-01-02T03:04:05Z","recipient":null}`)
	}
}

// acceptKey is the answer to a handshake's key (RFC 6455 §4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// frame makes the bytes of a frame.
func frame(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = append(b, 126, byte(n>>8), byte(n))
	default:
		b = append(b, 127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, payload...)
}

func message(id, payload string) string {
	return fmt.Sprintf(`{"type":"message","from":"alice^talk","to":"bob^talk","message_id":%q,"conversation_id":"c","message_type":"message","created_at":"2026-01-02T03:04:05Z","payload_base64":%q}`,
		id, base64.StdEncoding.EncodeToString([]byte(payload)))
}

// closeCode reads what a client sends until it closes; 0: it cut the connection.
func closeCode(t testing.TB, conn net.Conn) int {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(patience))
	for {
		head := make([]byte, 6)
		if _, err := io.ReadFull(conn, head); err != nil {
			return 0
		}
		payload := make([]byte, head[1]&127)
		if _, err := io.ReadFull(conn, payload); err != nil || head[1]&128 == 0 {
			t.Fatalf("a frame %x: %v", head, err)
		}
		if head[0]&15 == 8 {
			for i := range payload {
				payload[i] ^= head[2+i%4]
			}
			return int(payload[0])<<8 | int(payload[1])
		}
	}
}

// Frames that no relay sends close the connection with the code of RFC 6455, and the next
// connection is as good as ever. Texts that no relay sends are passed over.
func TestJavaScriptSurvivesHostileFrames(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, b := mustScript(t), newBadRelay(t)
	l := s.start([]string{"RELAY_URL=" + b.URL, "RELAY_KEY=mk_x"}, `
for await (const m of relay.listen({ signal: stop.signal })) {
  say({ id: m.id, payload: m.payload, polluted: ({}).polluted ?? null });
  if (m.id.startsWith("../")) await m.ack();
}`)
	large := strings.Repeat("x", 70_000)
	for i, c := range []struct {
		bytes []byte
		code  int
	}{
		{[]byte{0x81, 0x85, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 1002},     // masked
		{frame(0xC1, "{}"), 1002},                                 // a reserved bit
		{frame(0x83, ""), 1002},                                   // an unknown opcode
		{frame(0x8B, ""), 1002},                                   // an unknown control opcode
		{frame(0x09, ""), 1002},                                   // a ping in parts
		{frame(0x89, strings.Repeat("p", 126)), 1002},             // a long ping
		{frame(0x80, "{}"), 1002},                                 // a part of nothing
		{slices.Concat(frame(0x01, "{"), frame(0x81, "}")), 1002}, // a message within a message
		{frame(0x88, "x"), 1002},                                  // half a code
		{frame(0x81, "\xff\xfe"), 1007},                           // no UTF-8
		{append([]byte{0x81, 127}, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), 1009}, // more than there is
		{append([]byte{0x81, 127}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), 1009}, // and a negative length
		{frame(0x88, "\x03\xf5"), 1013},                  // a close, which is echoed
		{[]byte{0x88, 0}, 1000},                          // one without a code
		{frame(0x81, message("cut", large))[:40_000], 0}, // cut in the middle
		{frame(0x81, message("cut", "{}"))[:1], 0},       // cut in its header
		{slices.Concat(frame(0x01, message("parts", `{"a":1}`)[:30]), frame(0x89, "ping"), frame(0x80, message("parts", `{"a":1}`)[30:])), 0}, // good, in parts
	} {
		conn := <-b.sockets
		conn.Write(frame(0x81, message(fmt.Sprint("number-", i), "{}")))
		l.await(l.stdout, fmt.Sprintf(`"number-%d"`, i))
		conn.Write(c.bytes)
		if c.code == 0 {
			if strings.Contains(string(c.bytes), "ping") {
				l.await(l.stdout, `"parts","payload":{"a":1}`)
			}
			conn.(*net.TCPConn).CloseWrite()
		}
		if code := closeCode(t, conn); code != c.code {
			t.Errorf("number %d is closed with %d, want %d", i, code, c.code)
		}
		conn.Close()
	}
	conn := <-b.sockets
	for _, text := range []string{
		"", "{", "null", "[]", "7", `"message"`, `{"type":"message"}`, `{"type":"message","message_id":"a","payload_base64":"%%%"}`, `{"type":"message","message_id":7,"payload_base64":"e30="}`,
		message("b", "no JSON"), message("c", "\xff"), message("", "{}"), message("d", "null"), `{"type":"new","message_id":"e"}`, `{"type":"error","code":"x"}`, `{"type":"sync","phase":7}`,
		`{"__proto__":{"polluted":1},"type":"sync"}`, message("f", `{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}`), message("../../whoami?x#", `{}`),
	} {
		conn.Write(frame(0x81, text))
	}
	for part := range bytes.Lines(bytes.ReplaceAll(frame(0x81, message("last", `{"n":"`+large+`"}`)), []byte("A"), []byte("A\n"))) {
		conn.Write(bytes.TrimSuffix(part, []byte("\n"))) // byte by byte, nearly
		if !bytes.Contains(part, []byte("A\n")) {
			break
		}
	}
	conn.Write(frame(0x81, message("end", `{}`)))
	l.await(l.stdout, `"id":"end"`)
	text := l.stdout.String()
	if ids := regexp.MustCompile(`"id":"([a-f]|\.\.[^"]*)"`).FindAllString(text, -1); len(ids) != 2 || strings.Contains(text, `"polluted":1}`+"\n") {
		t.Errorf("%v were given out\n%s", ids, l.stderr)
	}
	l.kill()
	conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.acks) != 1 || !strings.HasPrefix(b.acks[0], "/api/v1/messages/..%2F..%2Fwhoami%3Fx%23/ack ") {
		t.Errorf("%q", b.acks)
	}
}

// A redelivered message is not given out again, unless the relay has lost its
// acknowledgement. Refusals that pass are waited for.
func TestJavaScriptRecognisesDuplicatesAndWaits(t *testing.T) {
	notQuick(t)
	t.Parallel()
	s, b := mustScript(t), newBadRelay(t)
	l := s.start([]string{"RELAY_URL=" + b.URL, "RELAY_KEY=mk_x"}, `
for await (const m of relay.listen({ signal: stop.signal })) {
  say({ id: m.id });
  if (m.id === "done") await m.ack();
  if (m.id === "end") say(await relay.send("bob^talk", {}));
}`)
	push := func(conn net.Conn, ids ...string) {
		for _, id := range ids {
			conn.Write(frame(0x81, message(id, "{}")))
		}
	}
	with := func(f func()) {
		b.mu.Lock()
		defer b.mu.Unlock()
		f()
	}
	looks := func(n int) {
		t.Helper()
		eventually(t, patience, "the client has read a record", func() (so bool) { with(func() { so = b.looked == n }); return so })
	}
	first := <-b.sockets
	push(first, "done", "held")
	l.await(l.stdout, "held")
	first.Close()
	with(func() { b.state = "acknowledged" })
	second := <-b.sockets
	push(second, "done", "held", "done", "held")
	looks(2)
	with(func() { b.state = "delivered" }) // as after relay restore
	push(second, "done", "next")
	l.await(l.stdout, `(?s)"done".*"done"`)
	l.await(l.stdout, `"next"`)
	looks(3)

	began := time.Now()
	with(func() {
		for _, status := range []int{429, 503} {
			b.refuse = append(b.refuse, func(w http.ResponseWriter) {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(status)
				fmt.Fprint(w, `{"code":"overloaded","detail":"wait"}`)
			})
		}
		b.refuse = append(b.refuse, func(w http.ResponseWriter) { // the answer gets lost
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				conn.Close()
			}
		})
	})
	push(second, "end")
	l.await(l.stdout, `"messageId":"msg_1"`)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("the client was asked to wait for two seconds, and waited %v", took)
	}
	if n := strings.Count(l.stdout.String(), "\n"); n != 6 {
		t.Errorf("%s", l.stdout)
	}
	l.kill()
	second.Close()
}
