package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"relay/db/relay"
	"relay/http/client"
)

// line returns a message as one line of JSON. The payload is as the sender wrote it, unless it has line breaks:
// then its white space is removed.
func line(m *client.Message) ([]byte, error) {
	payload := m.Payload
	if bytes.ContainsAny(payload, "\r\n") {
		var b bytes.Buffer
		if err := json.Compact(&b, payload); err != nil {
			return nil, err
		}
		payload = b.Bytes()
	}
	text, err := client.WithPayload(struct {
		MessageID      string `json:"message_id"`
		ConversationID string `json:"conversation_id"`
		From           string `json:"from"`
		To             string `json:"to"`
		MessageType    string `json:"message_type"`
		Priority       string `json:"priority"`
		CorrelationID  string `json:"correlation_id"`
		InReplyTo      string `json:"in_reply_to,omitempty"`
		CreatedAt      string `json:"created_at"`
	}{m.ID, m.ConversationID, m.Sender, m.To, m.Type, m.Priority, m.CorrelationID, m.InReplyTo,
		relay.FormatTime(m.SentAt)}, payload)
	return append(text, '\n'), err
}

// environment returns a message as variables for a command. Their names begin with RELAY_MESSAGE_, unlike the
// variable of any flag, so that a relay command that runs with them does not take them for its flags.
func environment(m *client.Message) []string {
	env := []string{
		"RELAY_MESSAGE_ID=" + m.ID,
		"RELAY_MESSAGE_CONVERSATION_ID=" + m.ConversationID,
		"RELAY_MESSAGE_FROM=" + m.Sender,
		"RELAY_MESSAGE_TO=" + m.To,
		"RELAY_MESSAGE_TYPE=" + m.Type,
		"RELAY_MESSAGE_PRIORITY=" + m.Priority,
		"RELAY_MESSAGE_CORRELATION_ID=" + m.CorrelationID,
		"RELAY_MESSAGE_IN_REPLY_TO=" + m.InReplyTo,
		"RELAY_MESSAGE_CREATED_AT=" + relay.FormatTime(m.SentAt),
		fmt.Sprintf("RELAY_MESSAGE_ATTEMPT=%d", m.Attempt),
	}
	for i := range env { // a correlation_id may have this character, but a variable must not
		env[i] = strings.ReplaceAll(env[i], "\x00", "\uFFFD")
	}
	return env
}
