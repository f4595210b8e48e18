package ws

import (
	"encoding/base64"
	"strconv"
	"sync"

	"github.com/gobwas/ws"

	"relay/db/relay"
)

// This file makes the JSON of the frames that the relay sends (PROTOCOL §4).

// field appends a member that is not the object's first one.
func field(b []byte, name, value string) []byte {
	b = append(append(append(b, ',', '"'), name...), '"', ':')
	return relay.AppendString(b, value)
}

// appendMessage appends a message as a text frame. The payload's exact bytes are
// in it, as Base64.
func appendMessage(b []byte, m *relay.Message) []byte {
	head := make([]byte, 0, usualEnvelope)
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
	if m.InReplyTo != "" {
		head = field(head, "in_reply_to", string(m.InReplyTo))
	}
	if !m.AckBy.IsZero() {
		head = append(head, `,"ack_by":"`...)
		head = append(relay.AppendTime(head, m.AckBy), '"')
	}
	if m.Trace.Parent != "" {
		head = field(head, "traceparent", m.Trace.Parent)
	}
	if m.Trace.State != "" {
		head = field(head, "tracestate", m.Trace.State)
	}
	if m.Attempt > 1 {
		head = strconv.AppendInt(append(head, `,"attempt":`...), int64(m.Attempt), 10)
	}
	head = append(head, `,"created_at":"`...)
	head = append(relay.AppendTime(head, m.CreatedAt), `","payload_base64":"`...)
	b = appendHeader(b, ws.OpText, len(head)+base64.StdEncoding.EncodedLen(len(m.Payload))+2)
	b = append(b, head...)
	b = base64.StdEncoding.AppendEncode(b, m.Payload)
	return append(b, `"}`...)
}

// A sharedFrame is the frame of a message for several connections. The first push
// that needs it makes it. Safe for concurrent use.
type sharedFrame struct {
	once  sync.Once
	frame []byte
}

func (s *sharedFrame) of(m *relay.Message) []byte {
	s.once.Do(func() {
		s.frame = appendMessage(make([]byte, 0, usualEnvelope+base64.StdEncoding.EncodedLen(len(m.Payload))), m)
	})
	return s.frame
}

const usualEnvelope = 512 // bytes: enough for most messages without their payload

// headerRoom is the length of the longest header that a frame may need. So much is
// left free before a text, since the length of the header depends on that of the text.
const headerRoom = 10

// newText begins a text frame: an object with its "type". There is room for n
// bytes more; endText ends the frame.
func newText(kind string, n int) []byte {
	b := make([]byte, headerRoom, headerRoom+len(`{"type":""}`)+len(kind)+n)
	return append(append(append(b, `{"type":"`...), kind...), '"')
}

// endText ends the object and puts the header of the frame before it.
func endText(b []byte) []byte {
	b = append(b, '}')
	var buf [headerRoom]byte
	head := appendHeader(buf[:0], ws.OpText, len(b)-headerRoom)
	b = b[headerRoom-len(head):]
	copy(b, head)
	return b
}

const usualFields = 160 // bytes: an id, a state, a time, and their names

// A receipt is a change of a message for the connections of its sender. The hub
// tells one after the other, so it is not safe for concurrent use.
type receipt struct {
	change *relay.Change
	made   []byte
}

// frame returns the frame, which it makes once, when a connection wants it.
func (r *receipt) frame() []byte {
	if r.made == nil {
		r.made = receiptFrame(r.change)
	}
	return r.made
}

func receiptFrame(c *relay.Change) []byte {
	b := newText("receipt", usualFields+len(c.Status)+len(c.Detail))
	b = field(b, "message_id", string(c.ID))
	b = field(b, "state", c.State.String())
	if c.Notice != relay.NoNotice {
		b = field(b, "status", c.Notice.String())
		b = append(b, `,"notice":true`...)
	} else if c.Status != "" {
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

// errorFrame makes an error about a message, or about the frame that the client called ref;
// "" for none.
func errorFrame(code relay.Code, message string, id relay.MessageID, ref string) []byte {
	b := newText("error", usualFields+len(message)+len(id)+len(ref))
	b = field(b, "code", string(code))
	b = field(b, "message", message)
	if id != "" {
		b = field(b, "message_id", string(id))
	}
	if ref != "" {
		b = field(b, "ref", ref)
	}
	return endText(b)
}

func syncFrame(phase string, sent int) []byte {
	b := field(newText("sync", usualFields), "phase", phase)
	b = append(b, `,"sent":`...)
	return endText(strconv.AppendInt(b, int64(sent), 10))
}
