package cmd_test

import (
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"relay/cmd"
	"relay/db/scratch"
)

// llm is a program that runs a model: it has a session with a relay mcp of an agent.
type llm struct {
	t       testing.TB
	session *mcp.ClientSession
	stderr  *output
}

// newLLM starts relay mcp for an agent, as a client of a version of the protocol; "" is
// the latest.
func newLLM(t testing.TB, url string, a agent, version string, env ...string) *llm {
	t.Helper()
	m := &llm{t: t, stderr: newOutput()}
	env = append(env, "RELAY_URL="+url, "RELAY_KEY="+a.Key)
	if a.Secret != nil {
		env = append(env, "RELAY_SIGNING_SECRET="+*a.Secret)
	}
	flagged, ok := flagsFor(t, []string{"mcp"}, env)
	if !ok || scratch.IsLong() {
		c := exec.Command(binary, "mcp")
		c.Env, c.Stderr = environ(env...), m.stderr
		m.connect(&mcp.CommandTransport{Command: c}, version)
		return m
	}
	in, write := io.Pipe()
	read, out := io.Pipe()
	var running sync.WaitGroup
	running.Go(func() {
		defer out.Close()
		cmd.Run(context.Background(), schema(), flagged, in, out, m.stderr)
		in.Close()
	})
	t.Cleanup(running.Wait) // after the end of the session
	m.connect(&mcp.IOTransport{Reader: read, Writer: write}, version)
	return m
}

// newToldLLM is newLLM, with a session whose instructions have the agent's address, for which
// relay mcp waits 3 s.
func newToldLLM(t testing.TB, url string, a agent, version string) (m *llm) {
	t.Helper()
	eventually(t, patience, "the instructions have the address of "+a.Address, func() bool {
		m = newLLM(t, url, a, version)
		return strings.Contains(m.session.InitializeResult().Instructions, "You are the agent "+a.Address)
	})
	return m
}

func (m *llm) connect(transport mcp.Transport, version string) {
	m.t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	var err error
	if m.session, err = c.Connect(m.t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version}); err != nil {
		m.t.Fatal(err, m.stderr)
	}
	m.t.Cleanup(func() { m.session.Close() })
}

// said is the answer of a tool.
type said struct {
	t     testing.TB
	text  string
	error bool
	meta  mcp.Meta
}

// callIn calls a tool. arguments are JSON.
func (m *llm) callIn(ctx context.Context, tool, arguments string, meta mcp.Meta) (said, error) {
	r, err := m.session.CallTool(ctx, &mcp.CallToolParams{Meta: meta, Name: tool, Arguments: json.RawMessage(arguments)})
	if err != nil {
		return said{}, err
	}
	if len(r.Content) != 1 || r.StructuredContent != nil {
		m.t.Errorf("%s: %d contents, structured %v", tool, len(r.Content), r.StructuredContent)
	}
	return said{m.t, r.Content[0].(*mcp.TextContent).Text, r.IsError, r.Meta}, nil
}

func (m *llm) call(tool, arguments string) said {
	m.t.Helper()
	a, err := m.callIn(m.t.Context(), tool, arguments, nil)
	if err != nil {
		m.t.Fatalf("%s %s: %v\n%s", tool, arguments, err, m.stderr)
	}
	if !json.Valid([]byte(a.text)) || strings.ContainsAny(a.text, "\n\r\x1b") {
		m.t.Errorf("%s: not one line of JSON: %q", tool, a.text)
	}
	return a
}

// toolAnswer has the fields of the answers of all tools.
type toolAnswer struct {
	You            string
	Pending        int
	Note           string
	MessageID      string `json:"message_id"`
	SearchID       string `json:"search_id"`
	ConversationID string `json:"conversation_id"`
	Recipient      string
	PendingBefore  int    `json:"pending_before"`
	NoReply        string `json:"no_reply"`
	Reply          *toolMessage
	Messages       []toolMessage
	More, Earlier  bool
	Verdict, Code  string
	Agents         []struct{ Address, About, Why string }
	Results        []struct {
		State, Status string
		Duplicate     bool
		Error         *toolFault
	}
	Error *toolFault
	toolMessage
}

type toolMessage struct {
	ID        string `json:"message_id"`
	From, To  string
	State     string
	Ack       string
	Detail    string
	InReplyTo string `json:"in_reply_to"`
	Payload   json.RawMessage
	Start     string `json:"payload_start"`
	MoreChars int    `json:"more_chars"`
	Signed    bool
}

type toolFault struct {
	Code, Detail   string
	DidYouMean     []string `json:"did_you_mean"`
	RetryAfter     int      `json:"retry_after_seconds"`
	IdempotencyKey string   `json:"idempotency_key"`
	WhatToDo       string   `json:"what_to_do"`
}

// ok expects success.
func (s said) ok() toolAnswer {
	s.t.Helper()
	if s.error {
		s.t.Fatalf("the tool failed: %s", s.text)
	}
	return parse[toolAnswer](s.t, []byte(s.text))
}

// fails expects an error that says what to do.
func (s said) fails(code string) toolFault {
	s.t.Helper()
	f := parse[toolAnswer](s.t, []byte(s.text)).Error
	if !s.error || f == nil || f.Code != code || f.Detail == "" || f.WhatToDo == "" {
		s.t.Fatalf("no error %s: %s", code, s.text)
	}
	return *f
}

var protocolVersions = mcp.SupportedProtocolVersions()

// The whole way of a question, with every version of the protocol on either side.
func TestMCPCarriesAQuestionAndItsAnswer(t *testing.T) {
	t.Parallel()
	if len(protocolVersions) < 5 {
		t.Fatal(protocolVersions)
	}
	db := tempDB(t)
	keys := issue(t, db, "planner^acme", "flights^acme")
	withSecret := issue(t, db, "secret^acme", "--signing-secret")[0]
	s := startServer(t, db, "--require-request-signature")
	for _, version := range protocolVersions {
		t.Run(version, func(t *testing.T) {
			a, b := newToldLLM(t, s.url, keys[0], version), newToldLLM(t, s.url, keys[1], version)
			sent := a.call("send_message", `{"to":"flights^acme","payload":{"to":"LIS","price":180.00,"id":12345678901234567890}}`).ok()
			in := b.call("check_inbox", `{}`).ok()
			if in.Pending != 1 || len(in.Messages) != 1 || in.Note == "" || !in.Messages[0].Signed || string(in.Messages[0].Payload) != `{"to":"LIS","price":180.00,"id":12345678901234567890}` {
				t.Fatalf("%+v", in)
			}
			if again := b.call("check_inbox", `{}`).ok(); again.Messages[0].State != "" || again.Pending != 1 {
				t.Errorf("looking has changed something: %+v", again)
			}
			reply := b.call("send_message", `{"in_reply_to":"`+in.Messages[0].ID+`","payload":{"seat":"12A"}}`).ok()
			if reply.ConversationID != sent.ConversationID {
				t.Errorf("the answer is in another conversation: %+v", reply)
			}
			b.call("ack_message", `{"message_ids":["`+in.Messages[0].ID+`"],"detail":"booked"}`).ok()
			got := a.call("check_inbox", `{"wait_seconds":25}`).ok()
			if len(got.Messages) != 1 || got.Messages[0].InReplyTo != sent.MessageID || got.Messages[0].From != "flights^acme" {
				t.Fatalf("%+v", got)
			}
			if r := a.call("ack_message", `{"message_ids":["`+got.Messages[0].ID+`"]}`).ok(); len(r.Results) != 1 || r.Results[0].State != "acknowledged" {
				t.Errorf("%+v", r)
			}
			if v := a.call("message_status", `{"message_id":"`+sent.MessageID+`"}`).ok(); v.Code != "answered" || !strings.Contains(v.Verdict, got.Messages[0].ID) {
				t.Errorf("%+v", v)
			}
			talk := a.call("read_conversation", `{"conversation_id":"`+sent.ConversationID+`"}`).ok()
			if len(talk.Messages) != 2 || talk.Messages[0].Ack != "completed" || talk.Messages[0].Detail != "booked" || string(talk.Messages[1].Payload) != `{"seat":"12A"}` {
				t.Errorf("%+v", talk)
			}
			if who := a.call("message_status", `{}`).ok(); who.You != "planner^acme" || who.Pending != 0 {
				t.Errorf("%+v", who)
			}
		})
	}
	if who := newLLM(t, s.url, withSecret, "").call("message_status", `{}`).ok(); who.You != "secret^acme" {
		t.Errorf("%+v", who)
	}
}

// A list of tools costs every conversation of a model its tokens.
func TestMCPToolsAreSmall(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^small")[0]
	s := startServer(t, db)
	m := newLLM(t, s.url, a, "")
	list, err := m.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(list)
	if err != nil || len(list.Tools) != 7 || len(text) > 7<<10 {
		t.Errorf("%d tools, %d bytes: %v", len(list.Tools), len(text), err)
	}
	r := m.session.InitializeResult()
	instructions := r.Instructions
	capabilities, err := json.Marshal(r.Capabilities)
	t.Logf("tools %d bytes, instructions %d bytes", len(text), len(instructions))
	if len(instructions) > 2000 || err != nil || string(capabilities) != `{"tools":{}}` {
		t.Errorf("%d bytes of instructions, %s, %v", len(instructions), capabilities, err)
	}
	for _, tool := range list.Tools {
		schema := tool.InputSchema.(map[string]any)
		if tool.Description == "" || schema["type"] != "object" || schema["additionalProperties"] != false {
			t.Errorf("%s: %v", tool.Name, schema)
		}
		for name := range schema["properties"].(map[string]any) { // the schema and the tool know the same arguments
			a := m.call(tool.Name, `{"`+name+`":[[]]}`)
			if f := a.fails("invalid_arguments"); !strings.HasPrefix(f.Detail, name+" ") {
				t.Errorf("%s %s: %s", tool.Name, name, f.Detail)
			}
		}
		m.call(tool.Name, `{"no_such_argument":1}`).fails("invalid_arguments")
	}
}
