package http

import (
	"encoding/hex"
	"strconv"
	"time"

	"relay/db/relay"
	"relay/db/strict"
)

// Answers are appended by hand: records are what most of the bytes are, and
// their fields are few and known.

func appendName(b []byte, before byte, name string) []byte {
	b = append(b, before, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func appendField(b []byte, before byte, name, value string) []byte {
	return strict.AppendString(appendName(b, before, name), value)
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

// AppendRecord appends the record of a message (PROTOCOL §3, Get Message); with
// the payload if it has been read.
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
	if m.Payload != nil {
		b = append(appendName(b, ',', "payload"), m.Payload...)
	}
	return append(b, '}')
}
