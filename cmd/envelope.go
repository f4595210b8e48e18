package cmd

import (
	"bytes"
	"encoding/json"
	"strings"
)

// envelope is a message as a client receives it: a frame of the WebSocket, or
// (Exact) a record of the history.
type envelope struct {
	Type           string          `json:"type"`
	MessageID      string          `json:"message_id"`
	ConversationID string          `json:"conversation_id"`
	From           string          `json:"from"`
	To             string          `json:"to"`
	MessageType    string          `json:"message_type"`
	Priority       string          `json:"priority"`
	CorrelationID  string          `json:"correlation_id"`
	CreatedAt      string          `json:"created_at"`
	Base64         []byte          `json:"payload_base64"`
	Exact          json.RawMessage `json:"payload"`
	Phase          string          `json:"phase"` // of a frame "sync"
	State          string          `json:"state"` // of a record, or a frame "receipt"
}

func (e *envelope) payload() []byte {
	if e.Base64 != nil {
		return e.Base64
	}
	return e.Exact
}

// line is the envelope as one line of JSON. The payload's bytes are the
// sender's, but for line breaks between them.
func (e *envelope) line() ([]byte, error) {
	payload := e.payload()
	if bytes.ContainsAny(payload, "\r\n") {
		var b bytes.Buffer
		if err := json.Compact(&b, payload); err != nil {
			return nil, err
		}
		payload = b.Bytes()
	}
	head := struct {
		MessageID      string `json:"message_id"`
		ConversationID string `json:"conversation_id"`
		From           string `json:"from"`
		To             string `json:"to"`
		MessageType    string `json:"message_type"`
		Priority       string `json:"priority"`
		CorrelationID  string `json:"correlation_id"`
		CreatedAt      string `json:"created_at"`
	}{e.MessageID, e.ConversationID, e.From, e.To, e.MessageType, e.Priority, e.CorrelationID, e.CreatedAt}
	return withPayload(head, payload, "\n")
}

// environment is the envelope for a command. The names begin with
// RELAY_MESSAGE_, which no flag of ours does: a relay command that is run in
// there must not take them for its settings.
func (e *envelope) environment() []string {
	env := []string{
		"RELAY_MESSAGE_ID=" + e.MessageID,
		"RELAY_MESSAGE_CONVERSATION_ID=" + e.ConversationID,
		"RELAY_MESSAGE_FROM=" + e.From,
		"RELAY_MESSAGE_TO=" + e.To,
		"RELAY_MESSAGE_TYPE=" + e.MessageType,
		"RELAY_MESSAGE_PRIORITY=" + e.Priority,
		"RELAY_MESSAGE_CORRELATION_ID=" + e.CorrelationID,
		"RELAY_MESSAGE_CREATED_AT=" + e.CreatedAt,
	}
	for i := range env { // an environment cannot hold this character, which a correlation_id may
		env[i] = strings.ReplaceAll(env[i], "\x00", "\uFFFD")
	}
	return env
}

// withPayload marshals an object that has fields, and adds the payload's exact
// bytes, which json.Marshal would compact.
func withPayload(head any, payload []byte, end string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(head); err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - len("}\n"))
	b.WriteString(`,"payload":`)
	b.Write(payload)
	b.WriteString("}" + end)
	return b.Bytes(), nil
}
