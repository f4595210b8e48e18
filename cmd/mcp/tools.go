package mcp

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tool is a tool as a client's model sees it. Every byte of it costs each conversation
// tokens: a test holds all definitions together to 7 KB.
type tool struct {
	name, about string
	reads       bool   // it changes nothing
	arguments   string // the properties of its JSON Schema
	required    []string
	call        func(*server, context.Context, *mcp.CallToolRequest) (any, error)
}

// tools are all tools. Their descriptions are written for a model: what a tool is for,
// and what to do next.
var tools = []tool{
	{
		name: "send_message", call: (*server).sendMessage, required: []string{"payload"},
		about: "Send a JSON message to another agent, or answer one (in_reply_to). Once this returns, the message is " +
			"stored on disk and will be delivered even if the recipient is away: " +
			"never send it again because no answer has come.",
		arguments: `"to":{"type":"string","description":"recipient's address, name^crew; *^crew for a whole crew. ` +
			`Not needed with in_reply_to"},` +
			`"payload":{"type":"object","description":"any JSON object, as {\"text\":\"…\"}"},` +
			`"in_reply_to":{"type":"string","description":"message_id that this answers; the answer goes to its sender, ` +
			`in its conversation"},` +
			`"conversation_id":{"type":"string","description":"go on in this conversation; default a new one"},` +
			`"message_type":{"type":"string"},` +
			`"search_id":{"type":"string","description":"that of find_agents, if it found the recipient"},` +
			`"ttl_seconds":{"type":"integer","minimum":1,"description":"expire if not handled by then; default never"},` +
			`"idempotency_key":{"type":"string","description":"only to repeat a call whose outcome is unknown: the key that ` +
			`its error names"},` +
			`"wait_reply_seconds":{"type":"integer","minimum":0,"maximum":25,"description":"wait this long for the answer"}`,
	},
	{
		name: "check_inbox", call: (*server).checkInbox, reads: true,
		about: "List messages that wait for you, oldest first. Changes nothing: they stay until ack_message. " +
			"Long payloads are cut to payload_start; read_message has all of it.",
		arguments: `"limit":{"type":"integer","minimum":1,"maximum":50,"default":10},` +
			`"from":{"type":"string","description":"only from this address"},` +
			`"after":{"type":"string","description":"only messages after this message_id: the next page, or what is new"},` +
			`"wait_seconds":{"type":"integer","minimum":0,"maximum":25,"description":"if there is none, wait for one"},` +
			`"max_chars":{"type":"integer","minimum":1,"maximum":4000,"default":400,"description":"of each payload"}`,
	},
	{
		name: "read_message", call: (*server).readMessage, reads: true, required: []string{"message_id"},
		about: "Read one message that you received, with its payload, or the state of one that you sent. Changes nothing.",
		arguments: `"message_id":{"type":"string"},` +
			`"max_chars":{"type":"integer","minimum":1,"maximum":100000,"default":20000,"description":"of the payload"},` +
			`"from_char":{"type":"integer","minimum":0,"description":"go on in a long payload from this character"}`,
	},
	{
		name: "ack_message", call: (*server).ackMessage, required: []string{"message_ids"},
		about: "Say what became of messages that you received; the senders are told. " +
			"completed, failed and rejected are final and take the message out of your inbox. processing: you are at work. " +
			"deferred: not now, with retry_after_seconds.",
		arguments: `"message_ids":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":50},` +
			`"status":{"type":"string","enum":["completed","failed","rejected","processing","deferred"],` +
			`"default":"completed"},` +
			`"detail":{"type":"string","description":"why, for the sender; at most 1 KiB"},` +
			`"retry_after_seconds":{"type":"integer","minimum":1,"description":"with deferred"}`,
	},
	{
		name: "find_agents", call: (*server).findAgents, reads: true, required: []string{"query"},
		about: "Find agents by what they can do or by name. Returns addresses for send_message, and a search_id to pass " +
			"along, by which later searches get better.",
		arguments: `"query":{"type":"string","description":"plain words, as: book a flight"},` +
			`"online":{"type":"boolean","description":"only those that listen now, or only those that do not"},` +
			`"limit":{"type":"integer","minimum":1,"maximum":20,"default":5}`,
	},
	{
		name: "read_conversation", call: (*server).readConversation, reads: true, required: []string{"conversation_id"},
		about: "Read the latest messages that you sent or received in a conversation, oldest first. " +
			"What you sent has no payload here. Changes nothing.",
		arguments: `"conversation_id":{"type":"string"},` +
			`"limit":{"type":"integer","minimum":1,"maximum":50,"default":10},` +
			`"before":{"type":"string","description":"only messages before this message_id: the page before"},` +
			`"max_chars":{"type":"integer","minimum":1,"maximum":4000,"default":1000,"description":"of each payload"}`,
	},
	{
		name: "message_status", call: (*server).messageStatus, reads: true,
		about: "What became of a message, and why there is no answer yet (verdict). Without message_id: " +
			"your own address, and how many messages wait for you.",
		arguments: `"message_id":{"type":"string"}`,
	},
}

// definition is the tool as tools/list has it.
func (t tool) definition() *mcp.Tool {
	required := ""
	if len(t.required) > 0 {
		names, _ := json.Marshal(t.required) // strings cannot fail
		required = `,"required":` + string(names)
	}
	hints := &mcp.ToolAnnotations{ReadOnlyHint: t.reads}
	if !t.reads {
		hints.DestructiveHint = new(bool) // it takes nothing away
	}
	return &mcp.Tool{
		Name: t.name, Description: t.about, Annotations: hints,
		InputSchema: json.RawMessage(`{"type":"object","properties":{` + t.arguments + `}` + required +
			`,"additionalProperties":false}`),
	}
}
