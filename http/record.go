package http

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"relay/db/relay"
)

// encode returns v as JSON and a newline. It leaves <, > and & as they are, where
// json.Marshal writes six bytes for each: people read error texts, and a profile
// that is read must not be longer than one that may be put.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// Records, and the answers about them, are appended field by field: they are most
// of the bytes that a relay sends, and their fields are few and known.

func appendName(b []byte, before byte, name string) []byte {
	b = append(b, before, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func appendField(b []byte, before byte, name, value string) []byte {
	return relay.AppendString(appendName(b, before, name), value)
}

// appendTime appends a time, or null for the zero time.
func appendTime(b []byte, before byte, name string, t time.Time) []byte {
	b = appendName(b, before, name)
	if t.IsZero() {
		return append(b, "null"...)
	}
	return append(relay.AppendTime(append(b, '"'), t), '"')
}

// appendOptional appends a string, or null for "".
func appendOptional(b []byte, before byte, name, value string) []byte {
	if value == "" {
		return append(appendName(b, before, name), "null"...)
	}
	return appendField(b, before, name, value)
}

func appendBool(b []byte, before byte, name string, v bool) []byte {
	return strconv.AppendBool(appendName(b, before, name), v)
}

func appendInt(b []byte, before byte, name string, v int) []byte {
	return strconv.AppendInt(appendName(b, before, name), int64(v), 10)
}

// appendOptionalFields appends the rarely used fields that this message has.
func appendOptionalFields(b []byte, m *relay.Message) []byte {
	if m.InReplyTo != "" {
		b = appendField(b, ',', "in_reply_to", string(m.InReplyTo))
	}
	if !m.AckBy.IsZero() {
		b = appendTime(b, ',', "ack_by", m.AckBy)
		b = appendBool(b, ',', "overdue", m.Overdue)
	}
	if m.Trace.Parent != "" {
		b = appendField(b, ',', "traceparent", m.Trace.Parent)
		if m.Trace.State != "" {
			b = appendField(b, ',', "tracestate", m.Trace.State)
		}
	}
	return b
}

// AppendRecord appends the record of a message (PROTOCOL §3, Get Message), with
// the payload if m has it.
func AppendRecord(b []byte, m *relay.Message) []byte {
	b = appendField(b, '{', "message_id", string(m.ID))
	b = appendField(b, ',', "conversation_id", string(m.Conversation))
	b = appendField(b, ',', "version", m.Version)
	b = appendField(b, ',', "from", string(m.From))
	b = appendField(b, ',', "to", string(m.To))
	b = appendField(b, ',', "message_type", m.Type)
	b = appendField(b, ',', "priority", m.Priority)
	b = appendField(b, ',', "correlation_id", m.CorrelationID)
	b = appendField(b, ',', "state", m.State.String())
	b = appendTime(b, ',', "created_at", m.CreatedAt)
	b = appendTime(b, ',', "delivered_at", m.DeliveredAt)
	b = appendTime(b, ',', "acknowledged_at", m.AcknowledgedAt)
	b = appendTime(b, ',', "expires_at", m.ExpiresAt)
	b = appendName(b, ',', "ack")
	if m.Ack == nil {
		b = append(b, "null"...)
	} else {
		b = appendField(b, '{', "status", m.Ack.Status)
		b = appendField(b, ',', "client_ts", m.Ack.ClientTS)
		b = appendTime(b, ',', "at", m.Ack.At)
		b = append(appendOptional(b, ',', "detail", m.Ack.Detail), '}')
	}
	b = appendInt(b, ',', "payload_bytes", m.PayloadBytes)
	b = append(appendName(b, ',', "payload_sha256"), '"')
	b = append(hex.AppendEncode(b, m.PayloadSHA256[:]), '"')
	b = appendBool(b, ',', "signed", m.Signed)
	b = appendOptionalFields(b, m)
	if m.Payload != nil {
		b = append(appendName(b, ',', "payload"), m.Payload...)
	}
	return append(b, '}')
}
