package cmd_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pages anew that tests make")

// transcript makes the part of the page "mcp" that shows a conversation.
type transcript struct {
	t     *testing.T
	text  strings.Builder
	rows  strings.Builder
	total int
	calls int // bytes of the calls of the conversation
}

// tokens is an estimate: English and JSON have about four bytes to a token.
func tokens(bytes int) int { return (bytes + 3) / 4 }

func (tr *transcript) row(what string, bytes int) {
	tr.total += bytes
	fmt.Fprintf(&tr.rows, "| %s | %d | %d |\n", what, bytes, tokens(bytes))
}

// step is one call: what the model writes, and what it reads.
func (tr *transcript) step(who string, m *rawMCP, id int, tool, arguments string) toolAnswer {
	tr.t.Helper()
	m.write(toolCall(id, tool, arguments))
	answer := shownTo(tr.t, m.read())
	fmt.Fprintf(&tr.text, "%s → %s %s\n%s ← %s\n\n", who, tool, arguments, who, answer)
	tr.calls += len(tool) + len(arguments) + len(answer)
	return parse[toolAnswer](tr.t, []byte(answer))
}

// stable replaces what differs from run to run: ids and times. Their lengths are the same.
func stable(text string) string {
	for _, kind := range []string{"msg_", "conv_", "srch_"} {
		seen := map[string]string{}
		text = regexp.MustCompile(kind+`[0-9a-z]{26}`).ReplaceAllStringFunc(text, func(id string) string {
			if seen[id] == "" {
				seen[id] = fmt.Sprintf("%s06fexd1h8k0000a2b3c4d5e6f%d", kind, len(seen)+1)
			}
			return seen[id]
		})
	}
	return regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ`).ReplaceAllLiteralString(text, "2026-11-22T08:00:00.000Z")
}

// The page "mcp" shows a conversation as it is on the line, and what it costs.
func TestTheTranscriptOfTheMCPPage(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "planner^acme", "flights^acme")
	s := startServer(t, db)
	s.ask(keys[1], "PUT", "/api/v1/mecha/flights^acme/profile", `{"display_name":"Flights","description":"books flights and knows the prices"}`).want(t, 200)
	a, b := newRawMCP(t, s.url, keys[0]), newRawMCP(t, s.url, keys[1])
	tr := &transcript{t: t}

	a.write(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
	list := parse[struct{ Result json.RawMessage }](t, a.read()).Result
	if len(list) > 7<<10 {
		t.Errorf("the definitions of the tools have %d bytes", len(list))
	}
	instructions := instructionsOf(t, s, keys[0])
	eventually(t, patience, "flights is found", func() bool {
		a.write(toolCall(1, "find_agents", `{"query":"book a flight"}`))
		return strings.Contains(shownTo(t, a.read()), `"flights^acme"`)
	})
	tr.row("once in a session: the seven definitions (`tools/list`)", len(list))
	tr.row("once in a session: the instructions", len(instructions))

	f := tr.step("A", a, 2, "find_agents", `{"query":"book a flight"}`)
	sent := tr.step("A", a, 3, "send_message", `{"to":"flights^acme","payload":{"question":"What is the cheapest flight from ZRH to LIS on Friday?"},"search_id":"`+f.SearchID+`"}`)
	in := tr.step("B", b, 2, "check_inbox", `{}`)
	if len(in.Messages) != 1 || in.Messages[0].ID != sent.MessageID {
		t.Fatalf("%+v", in)
	}
	tr.step("B", b, 3, "send_message", `{"in_reply_to":"`+sent.MessageID+`","payload":{"flight":"TP 931","price":180.00,"currency":"EUR"}}`)
	tr.step("B", b, 4, "ack_message", `{"message_ids":["`+sent.MessageID+`"]}`)
	got := tr.step("A", a, 4, "check_inbox", `{}`)
	if len(got.Messages) != 1 || got.Messages[0].InReplyTo != sent.MessageID {
		t.Fatalf("%+v", got)
	}
	if r := tr.step("A", a, 5, "ack_message", `{"message_ids":["`+got.Messages[0].ID+`"]}`); r.Results[0].State != "acknowledged" {
		t.Fatalf("%+v", r)
	}

	tr.row("the seven calls of the conversation", tr.calls)

	const page = "mcp/mcp.md"
	const begin, end = "<!-- The test TestTheTranscriptOfTheMCPPage writes from here -->\n", "<!-- to here. -->"
	file, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(file), begin)
	_, tail, found2 := strings.Cut(rest, end)
	if !found || !found2 {
		t.Fatalf("%s has no place for the transcript", page)
	}
	want := head + begin + "\n```text\n" + strings.TrimSuffix(stable(tr.text.String()), "\n") + "```\n\n" +
		"| | Bytes | Tokens, estimated |\n| --- | --- | --- |\n" + tr.rows.String() + fmt.Sprintf("| in all | %d | %d |\n", tr.total, tokens(tr.total)) + end + tail
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(file) {
		t.Errorf("%s is not what happens; write it anew: go test ./cmd -run TestTheTranscript -update\n%s", page, stable(tr.text.String())+tr.rows.String())
	}
}

// instructionsOf asks for the instructions as a client does.
func instructionsOf(t *testing.T, s *server, a agent) string {
	t.Helper()
	return newToldLLM(t, s.url, a, "").session.InitializeResult().Instructions
}
