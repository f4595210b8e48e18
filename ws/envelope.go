package ws

import (
	"encoding/base64"

	"github.com/gobwas/ws"

	"relay/db"
)

// The JSON of the frames that the relay sends (PROTOCOL §4).

func field(b []byte, name, value string) []byte {
	b = append(append(append(b, ',', '"'), name...), '"', ':')
	return db.AppendString(b, value)
}

// appendMessage appends the envelope of a message as a text frame. The payload
// is its exact bytes in Base64.
func appendMessage(b []byte, m *db.Message) []byte {
	head := make([]byte, 0, 512)
	head = append(head, `{"type":"message"`...)
	head = field(head, "from", string(m.From))
	head = field(head, "to", string(m.To))
	head = field(head, "message_id", string(m.ID))
	head = field(head, "conversation_id", string(m.Conversation))
	head = field(head, "message_type", m.Type)
	head = field(head, "priority", m.Priority)
	if m.CorrelationID != "" {
		head = field(head, "correlation_id", m.CorrelationID)
	}
	head = append(head, `,"created_at":"`...)
	head = append(db.AppendTime(head, m.CreatedAt), `","payload_base64":"`...)
	b = appendHeader(b, ws.OpText, len(head)+base64.StdEncoding.EncodedLen(len(m.Payload))+2)
	b = append(b, head...)
	b = base64.StdEncoding.AppendEncode(b, m.Payload)
	return append(b, `"}`...)
}

func receiptFrame(c db.Change) []byte {
	b := append([]byte(nil), `{"type":"receipt"`...)
	b = field(b, "message_id", string(c.ID))
	b = field(b, "state", c.State.String())
	if c.Status != "" {
		b = field(b, "status", c.Status)
	}
	if c.Detail != "" {
		b = field(b, "detail", c.Detail)
	}
	b = field(b, "at", db.FormatTime(c.At))
	return appendFrame(nil, ws.OpText, append(b, '}'))
}

func ackFrame(out db.AckOutcome) []byte {
	b := append([]byte(nil), `{"type":"ack_ok"`...)
	b = field(b, "message_id", string(out.ID))
	b = field(b, "state", out.State.String())
	b = field(b, "status", out.Status)
	return appendFrame(nil, ws.OpText, append(b, '}'))
}

func errorFrame(code db.Code, message string, id db.MessageID) []byte {
	b := append([]byte(nil), `{"type":"error"`...)
	b = field(b, "code", string(code))
	b = field(b, "message", message)
	if id != "" {
		b = field(b, "message_id", string(id))
	}
	return appendFrame(nil, ws.OpText, append(b, '}'))
}

func syncFrame(phase string, sent int) []byte {
	b := field([]byte(`{"type":"sync"`), "phase", phase)
	b = append(b, `,"sent":`...)
	b = appendNumber(b, sent)
	return appendFrame(nil, ws.OpText, append(b, '}'))
}
