package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// envelope is what a client receives: a frame of the WebSocket, or a record of
// the history.
type envelope struct {
	Type string `json:"type"`
	envelopeHead
	PayloadBase64 []byte          `json:"payload_base64"` // in a frame
	Payload       json.RawMessage `json:"payload"`        // in a record
	Phase         string          `json:"phase"`          // in a frame "sync"
	State         string          `json:"state"`          // in a record, or a frame "receipt"
	Status        string          `json:"status"`         // in a frame "receipt"
	Attempt       int             `json:"attempt"`        // 0 is the first

	held context.Context // ends with the worker's lease; nil: there is none
}

// envelopeHead has the fields that are printed before the payload, in this order.
type envelopeHead struct {
	MessageID      string `json:"message_id"`
	ConversationID string `json:"conversation_id"`
	From           string `json:"from"`
	To             string `json:"to"`
	MessageType    string `json:"message_type"`
	Priority       string `json:"priority"`
	CorrelationID  string `json:"correlation_id"`
	InReplyTo      string `json:"in_reply_to,omitempty"`
	CreatedAt      string `json:"created_at"`
}

// payload returns the payload as the sender wrote it.
func (e *envelope) payload() []byte {
	if e.PayloadBase64 != nil {
		return e.PayloadBase64
	}
	return e.Payload
}

// line returns the envelope as one line of JSON. The payload is as the sender
// wrote it; only if it has line breaks, its white space is removed.
func (e *envelope) line() ([]byte, error) {
	payload := e.payload()
	if bytes.ContainsAny(payload, "\r\n") {
		var b bytes.Buffer
		if err := json.Compact(&b, payload); err != nil {
			return nil, err
		}
		payload = b.Bytes()
	}
	return withPayload(e.envelopeHead, payload, "\n")
}

// environment returns the envelope as variables for a command. Their names begin
// with RELAY_MESSAGE_, as the variable of no flag does: a relay command that runs
// with them must not take them for its flags.
func (e *envelope) environment() []string {
	env := []string{
		"RELAY_MESSAGE_ID=" + e.MessageID,
		"RELAY_MESSAGE_CONVERSATION_ID=" + e.ConversationID,
		"RELAY_MESSAGE_FROM=" + e.From,
		"RELAY_MESSAGE_TO=" + e.To,
		"RELAY_MESSAGE_TYPE=" + e.MessageType,
		"RELAY_MESSAGE_PRIORITY=" + e.Priority,
		"RELAY_MESSAGE_CORRELATION_ID=" + e.CorrelationID,
		"RELAY_MESSAGE_IN_REPLY_TO=" + e.InReplyTo,
		"RELAY_MESSAGE_CREATED_AT=" + e.CreatedAt,
		fmt.Sprintf("RELAY_MESSAGE_ATTEMPT=%d", max(e.Attempt, 1)),
	}
	for i := range env { // a correlation_id may have this character, but a variable must not
		env[i] = strings.ReplaceAll(env[i], "\x00", "\uFFFD")
	}
	return env
}

// withPayload marshals head, which has fields, and adds the payload to it byte
// for byte: json.Marshal would compact it. Then it appends end.
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
