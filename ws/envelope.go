package ws

import (
	"encoding/base64"
	"sync"

	"relay/db/relay"
	"relay/db/strict"

	"github.com/gobwas/ws"
)

// The JSON of the frames that the relay sends (PROTOCOL §4).

func field(b []byte, name, value string) []byte {
	b = append(append(append(b, ',', '"'), name...), '"', ':')
	return strict.AppendString(b, value)
}

// appendMessage appends the envelope of a message as a text frame. The payload
// is its exact bytes in Base64.
func appendMessage(b []byte, m *relay.Message) []byte {
	head := make([]byte, 0, envelope)
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
	head = append(relay.AppendTime(head, m.CreatedAt), `","payload_base64":"`...)
	b = appendHeader(b, ws.OpText, len(head)+base64.StdEncoding.EncodedLen(len(m.Payload))+2)
	b = append(b, head...)
	b = base64.StdEncoding.AppendEncode(b, m.Payload)
	return append(b, `"}`...)
}

// A sharedFrame is the frame of a message for several connections, made once,
// by whichever comes first.
type sharedFrame struct {
	once  sync.Once
	frame []byte
}

func (s *sharedFrame) of(m *relay.Message) []byte {
	s.once.Do(func() {
		s.frame = appendMessage(make([]byte, 0, envelope+base64.StdEncoding.EncodedLen(len(m.Payload))), m)
	})
	return s.frame
}

const envelope = 512 // bytes: what usually stands around the payload

// headerRoom is left free in front of a text, whose length tells what its header will be.
const headerRoom = 10

// newText begins a frame with the JSON of an object of a type, with room for n bytes more.
func newText(kind string, n int) []byte {
	b := make([]byte, headerRoom, headerRoom+len(`{"type":""}`)+len(kind)+n)
	return append(append(append(b, `{"type":"`...), kind...), '"')
}

// endText ends the object and puts the header before it.
func endText(b []byte) []byte {
	b = append(b, '}')
	var buf [headerRoom]byte
	head := appendHeader(buf[:0], ws.OpText, len(b)-headerRoom)
	b = b[headerRoom-len(head):]
	copy(b, head)
	return b
}

const usualFields = 160 // bytes: an id, a state, a time, and their names

func receiptFrame(c *relay.Change) []byte {
	b := newText("receipt", usualFields+len(c.Status)+len(c.Detail))
	b = field(b, "message_id", string(c.ID))
	b = field(b, "state", c.State.String())
	if c.Status != "" {
		b = field(b, "status", c.Status)
	}
	if c.Detail != "" {
		b = field(b, "detail", c.Detail)
	}
	b = append(b, `,"at":"`...)
	return endText(append(relay.AppendTime(b, c.At), '"'))
}

func ackFrame(out *relay.AckOutcome) []byte {
	b := newText("ack_ok", usualFields+len(out.Status))
	b = field(b, "message_id", string(out.ID))
	b = field(b, "state", out.State.String())
	b = field(b, "status", out.Status)
	return endText(b)
}

func errorFrame(code relay.Code, message string, id relay.MessageID) []byte {
	b := newText("error", usualFields+len(message)+len(id))
	b = field(b, "code", string(code))
	b = field(b, "message", message)
	if id != "" {
		b = field(b, "message_id", string(id))
	}
	return endText(b)
}

func syncFrame(phase string, sent int) []byte {
	b := field(newText("sync", usualFields), "phase", phase)
	b = append(b, `,"sent":`...)
	return endText(appendNumber(b, sent))
}
