package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"relay/db/scratch"
)

// An error of the relay is one that a model can act on.
func TestMCPErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "planner^acme", "flights^acme", "other^acme")
	s := startServer(t, db, "--max-body", "4000")
	a, b, c := newLLM(t, s.url, keys[0], ""), newLLM(t, s.url, keys[1], ""), newLLM(t, s.url, keys[2], "")
	if f := a.call("send_message", `{"to":"flihgts^acme","payload":{}}`).fails("recipient_not_found"); len(f.DidYouMean) != 1 || f.DidYouMean[0] != "flights^acme" {
		t.Errorf("%+v", f)
	}
	a.call("send_message", `{"to":"flights^acme","payload":"{}"}`).fails("invalid_arguments")
	a.call("send_message", `{"to":"flights^acme"}`).fails("invalid_arguments")
	a.call("send_message", `{"payload":{}}`).fails("invalid_arguments")
	a.call("send_message", `{"to":"nobody","payload":{}}`).fails("invalid_address")
	a.call("send_message", `{"to":"flights^acme","payload":{},"wait_reply_seconds":26}`).fails("invalid_arguments")
	a.call("check_inbox", `{"wait_seconds":26}`).fails("invalid_arguments")
	a.call("check_inbox", `{"limit":-1}`).fails("invalid_arguments")
	a.call("check_inbox", `{"after":"msg_nonsense"}`).fails("cursor_not_found")
	a.call("find_agents", `{"query":" "}`).fails("invalid_arguments")
	a.call("read_conversation", `{"conversation_id":"conv_0t3z1hj9e001xzqx8pz68qj0y4"}`).fails("conversation_not_found")
	a.call("send_message", `{"to":"flights^acme","payload":{"text":"`+strings.Repeat("x", 4000)+`"}}`).fails("payload_too_large")
	for _, id := range []string{"msg_nonsense", "../whoami", "../../whoami", "x?y#z", "%2e%2e"} {
		a.call("read_message", `{"message_id":"`+id+`"}`).fails("message_not_found")
		a.call("message_status", `{"message_id":"`+id+`"}`).fails("message_not_found")
	}
	sent := a.call("send_message", `{"to":"flights^acme","payload":{"n":1}}`).ok()
	c.call("read_message", `{"message_id":"`+sent.MessageID+`"}`).fails("not_a_party")
	a.call("ack_message", `{"message_ids":["`+sent.MessageID+`"]}`).fails("recipient_only")
	if own := a.call("read_message", `{"message_id":"`+sent.MessageID+`"}`).ok(); own.State != "queued" || own.Payload != nil || own.toolMessage.To != "flights^acme" {
		t.Errorf("%+v", own)
	}
	b.call("ack_message", `{"message_ids":["`+sent.MessageID+`"],"status":"rejected","detail":"no more seats"}`).ok()
	b.call("ack_message", `{"message_ids":["`+sent.MessageID+`"]}`).fails("already_acknowledged")
	if some := b.call("ack_message", `{"message_ids":["msg_nonsense","`+sent.MessageID+`"],"status":"rejected"}`).ok(); some.Results[0].Error == nil || !some.Results[1].Duplicate {
		t.Errorf("%+v", some)
	}
	if v := a.call("send_message", `{"to":"flights^acme","payload":{},"wait_reply_seconds":1}`).ok(); v.NoReply == "" || v.Reply != nil || !strings.HasPrefix(v.Recipient, "away since ") {
		t.Errorf("%+v", v)
	}
	if v := a.call("message_status", `{"message_id":"`+sent.MessageID+`"}`).ok(); v.Code != "rejected" || !strings.Contains(v.Verdict, "no more seats") {
		t.Errorf("%+v", v)
	}
	if _, err := a.callIn(t.Context(), "no_such_tool", `{}`, nil); err == nil {
		t.Error("a tool that there is not was called")
	}
}

// A key that is revoked while a session lasts is said to be so, and nothing that is said has
// a key in it.
func TestMCPTellsOfARevokedKey(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^revoked", "b^revoked")
	s := startServer(t, db, "--log-level", "debug")
	m := newLLM(t, s.url, keys[0], "")
	m.call("check_inbox", `{}`).ok()
	var held said
	done := make(chan error, 1)
	go func() {
		var err error
		held, err = m.callIn(t.Context(), "check_inbox", `{"wait_seconds":25}`, nil)
		done <- err
	}()
	eventually(t, patience, "the wait has begun", func() bool { return online(t, s, keys[1], "a^revoked") })
	mustRelay(t, "key", "revoke", keys[0].KeyID, "--db", db)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	held.fails("key_revoked")
	f := m.call("send_message", `{"to":"b^revoked","payload":{}}`).fails("key_revoked")
	if !strings.Contains(f.WhatToDo, "user") {
		t.Errorf("%+v", f)
	}
	unknown := keys[0]
	unknown.Key = issue(t, tempDB(t), "a^elsewhere")[0].Key
	other := newLLM(t, s.url, unknown, "") // starts, and says why nothing works
	g := other.call("check_inbox", `{}`).fails("unknown_key")
	for _, key := range []string{keys[0].Key, unknown.Key} {
		for _, text := range []string{held.text, fmt.Sprint(f, g), m.stderr.String(), other.stderr.String(), s.stderr.String()} {
			if strings.Contains(text, key) {
				t.Errorf("the key is in %s", text)
			}
		}
	}
}

// online asks, as the agent asker, whether a Mecha listens.
func online(t *testing.T, s *server, asker agent, address string) bool {
	return parse[struct{ Online bool }](t, s.ask(asker, "GET", "/api/v1/mecha/"+address+"/profile", "").want(t, 200)).Online
}

// The relay is killed and started again while a model waits and sends: no call fails,
// and every message is there once.
func TestMCPSurvivesARestart(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^restart", "b^restart")
	s := startProcess(t, db, "--addr", scratch.Addr(t)) // it is started again there
	a, b := newLLM(t, s.url, keys[0], ""), newLLM(t, s.url, keys[1], "")
	waiting := make(chan said, 1)
	go func() {
		got, err := b.callIn(t.Context(), "check_inbox", `{"wait_seconds":25}`, nil)
		if err != nil {
			t.Error(err)
		}
		waiting <- got
	}()
	eventually(t, patience, "the wait has begun", func() bool { return online(t, s, keys[0], "b^restart") })
	s.kill()
	const messages = 20
	sent := make(chan string, messages)
	for i := range messages {
		go func() {
			got, err := a.callIn(t.Context(), "send_message", fmt.Sprintf(`{"to":"b^restart","payload":{"n":%d}}`, i), nil)
			if err != nil {
				t.Error(err)
			}
			sent <- got.text
		}()
	}
	s = startServerAt(t, s)
	ids := map[string]bool{}
	for range messages {
		answer := parse[toolAnswer](t, []byte(<-sent))
		ids[answer.MessageID] = true
		if answer.Error != nil {
			t.Errorf("%+v", answer.Error)
		}
	}
	if first := (<-waiting).ok(); len(first.Messages) == 0 {
		t.Errorf("the wait ended without a message: %+v", first)
	}
	in := b.call("check_inbox", `{"limit":50}`).ok()
	if len(ids) != messages || in.Pending != messages || len(in.Messages) != messages {
		t.Errorf("%d ids, %d pending, %d in the inbox", len(ids), in.Pending, len(in.Messages))
	}
}

// A relay that is away is an error that says so, and not the end of the session.
func TestMCPStartsBeforeItsRelay(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^away")[0]
	s := startProcess(t, db, "--addr", scratch.Addr(t)) // it is started again there
	s.kill()
	m := newLLM(t, s.url, a, "", "RELAY_RETRY=1s")
	m.call("check_inbox", `{}`).fails("unreachable")
	m.call("send_message", `{"to":"a^away","payload":{}}`).fails("unreachable")
	startServerAt(t, s)
	if who := m.call("message_status", `{}`).ok(); who.You != "a^away" {
		t.Errorf("%+v", who)
	}
}

// A canceled call ends at the relay, too, and gives its place back.
func TestMCPHonoursCancellation(t *testing.T) {
	t.Parallel()
	for _, version := range []string{protocolVersions[0], "2025-06-18"} {
		t.Run(version, func(t *testing.T) {
			db := tempDB(t)
			keys := issue(t, db, "a^cancel", "b^cancel")
			s := startServer(t, db, "--max-sockets-per-mecha", "1")
			m := newLLM(t, s.url, keys[0], version)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := m.callIn(ctx, "check_inbox", `{"wait_seconds":25}`, nil)
				done <- err
			}()
			isOnline := func() bool { return online(t, s, keys[1], "a^cancel") }
			eventually(t, patience, "the wait has begun", isOnline)
			if v := m.call("message_status", `{}`).ok(); v.You == "" { // another call does not wait for it
				t.Errorf("%+v", v)
			}
			began := time.Now()
			cancel()
			if err := <-done; err == nil {
				t.Error("a canceled call had an answer")
			}
			eventually(t, patience, "the relay's wait has ended", func() bool { return !isOnline() })
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it ended after %v, by itself", took)
			}
		})
	}
}

// The trace of a call shows its message.
func TestMCPHandsTracesOn(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^traced", "b^traced")
	s := startServer(t, db)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a, b := newLLM(t, s.url, keys[0], ""), newLLM(t, s.url, keys[1], "")
	send := func(meta mcp.Meta) string {
		got, err := a.callIn(t.Context(), "send_message", `{"to":"b^traced","payload":{}}`, meta)
		if err != nil {
			t.Fatal(err)
		}
		return got.ok().MessageID
	}
	traced, bad := send(mcp.Meta{"traceparent": parent, "tracestate": "a=1"}), send(mcp.Meta{"traceparent": "x\r\nX-Mecha-Key: y", "tracestate": 7})
	for id, want := range map[string]mcp.Meta{traced: {"traceparent": parent, "tracestate": "a=1"}, bad: {}} {
		got := b.call("read_message", `{"message_id":"`+id+`"}`)
		if got.meta["traceparent"] != want["traceparent"] || got.meta["tracestate"] != want["tracestate"] {
			t.Errorf("%v, want %v", got.meta, want)
		}
	}
}

// rawMCP is a relay mcp whose stdin and stdout a test holds itself.
type rawMCP struct {
	*server
	in    io.WriteCloser
	lines *bufio.Scanner
}

func newRawMCP(t *testing.T, url string, a agent) *rawMCP {
	t.Helper()
	c := exec.Command(binary, "mcp")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	c.Stdout = w
	m := &rawMCP{server: launch(t, c, []string{"RELAY_URL=" + url, "RELAY_KEY=" + a.Key}), in: in, lines: bufio.NewScanner(r)}
	m.lines.Buffer(nil, 32<<20)
	go func() {
		<-m.exited
		w.Close()
	}()
	m.write(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	m.read()
	m.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

func (m *rawMCP) write(line string) {
	m.t.Helper()
	if _, err := io.WriteString(m.in, line+"\n"); err != nil {
		m.t.Fatal(err, m.stderr)
	}
}

// read reads one line, which is a message of the protocol.
func (m *rawMCP) read() (line []byte) {
	m.t.Helper()
	if !m.lines.Scan() {
		m.t.Fatal("stdout has ended: ", m.lines.Err(), m.stderr)
	}
	line = bytes.Clone(m.lines.Bytes())
	if v := parse[struct{ Jsonrpc string }](m.t, line); v.Jsonrpc != "2.0" {
		m.t.Fatalf("not a message: %s", line)
	}
	return line
}

// toolCall is a call as it is on the line.
func toolCall(id int, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
}

// When its client goes, relay mcp ends, even in the middle of a wait; so it does at SIGTERM.
func TestMCPEndsWithItsClient(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^ends", "b^ends")
	s := startProcess(t, db)
	for name, end := range map[string]func(m *rawMCP){
		"stdin":   func(m *rawMCP) { m.in.Close() },
		"SIGTERM": func(m *rawMCP) { m.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "SIGTERM" {
				notOnWindows(t, "there is no SIGTERM")
			}
			m := newRawMCP(t, s.url, keys[0])
			m.write(toolCall(1, "check_inbox", `{"wait_seconds":25}`))
			eventually(t, patience, "the wait has begun", func() bool { return online(t, s, keys[1], "a^ends") })
			began := time.Now()
			end(m)
			go io.Copy(io.Discard, readerOf(m.lines))
			if code := m.wait(); code != 0 || time.Since(began) > 20*time.Second {
				t.Errorf("exit %d after %v: %s", code, time.Since(began), m.stderr)
			}
			eventually(t, patience, "the relay's wait has ended", func() bool { return !online(t, s, keys[1], "a^ends") })
		})
	}
}

// readerOf drains a scanner.
func readerOf(s *bufio.Scanner) io.Reader {
	for s.Scan() {
	}
	return strings.NewReader("")
}

// A script may write its calls and close stdin: it gets the answers.
func TestMCPAnswersWhatAScriptPipes(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^piped")[0]
	s := startServer(t, db)
	lines := []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, toolCall(2, "message_status", `{}`),
	}
	var r result
	eventually(t, patience, "the answer comes in the 3 s after the end of stdin", func() bool {
		r = run(t, []string{"mcp"}, []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + a.Key}, strings.Join(lines, "\n")+"\n").wantCode(t, 0)
		if r.err != "" {
			t.Errorf("stderr: %q", r.err)
		}
		return strings.Contains(r.out, `{\"you\":\"a^piped\"`)
	})
	run(t, []string{"mcp"}, []string{"RELAY_URL=" + s.url}, "").wantCode(t, 2, "no key")
	if v := json.Valid([]byte(strings.Split(r.out, "\n")[0])); !v {
		t.Error(r.out)
	}
}
