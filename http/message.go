package http

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay/db/relay"
)

// sendMessage answers POST /api/v1/messages: it accepts a message.
func (s *Server) sendMessage(c *call) (answer, error) {
	m, sent, err := s.readMessage(&c.input)
	if err != nil {
		return answer{}, err
	}
	if m == nil {
		return s.created(c, sent)
	}
	m.Trace.Keep(joined(c.Header["Traceparent"]), joined(c.Header["Tracestate"]))
	s.endLarge(c)
	sent, err = s.config.DB.Send(m)
	if err != nil {
		s.chargeScan(c.key, err)
		return answer{}, err
	}
	s.keys.charge(c.key.Number, len(sent.IDs)-1, s.config.Now()) // each message to a crew counts as one sent
	return s.created(c, sent)
}

// joined returns the value of a header that may have come in several lines (RFC 9110 §5.3).
func joined(lines []string) string { return strings.Join(lines, ",") }

// readMessage reads the message that a client sends. If the client sent it before, with
// the same Idempotency-Key, m is nil, and sent is what the client has missed. That is
// looked up before any other check of the body (PROTOCOL §3).
func (s *Server) readMessage(in *input) (m *relay.SendMessage, sent relay.Sent, err error) {
	if in.idempotency != (relay.IdempotencyKey{}) {
		sent, known, err := s.stored(in)
		if err != nil || known {
			return nil, sent, err
		}
	}
	m = &relay.SendMessage{At: in.at, Key: in.key.Number, Signed: in.signed, Nonce: in.claimed,
		Idempotency: in.idempotency, OnlyReplay: in.replay}
	return m, relay.Sent{}, m.Read(in.body, in.key.Mecha.Address)
}

// chargeScan charges the search for similar addresses that a refused send has caused.
func (s *Server) chargeScan(key *relay.Key, err error) {
	var e *relay.Error
	if errors.As(err, &e) {
		s.chargeRows(key, e.Looked, rowsPerRequest)
	}
}

// created answers 201.
func (s *Server) created(c *call, sent relay.Sent) (answer, error) {
	// The message is durable, so a read that fails must not make the answer a refusal: the
	// answer then says nothing of the recipient.
	seen, visible, err := s.config.DB.Presence(context.WithoutCancel(c.Context()), c.key.Mecha, sent.Recipient)
	b := s.appendSent(nil, sent, seen, visible && err == nil)
	b, header := s.addReply(b, c, sent.ID)
	if sent.Replayed {
		header = append(header, "Idempotent-Replayed", "true")
	}
	return answer{status: http.StatusCreated, body: append(b, "}\n"...), header: header}, nil
}

// appendSent appends the answer to a send, without the brace that ends it: with when the
// recipient was last seen, if the sender may know that.
func (s *Server) appendSent(b []byte, sent relay.Sent, seen time.Time, visible bool) []byte {
	b = slices.Grow(b, 256)
	b = appendField(b, '{', "message_id", string(sent.ID))
	b = appendField(b, ',', "conversation_id", string(sent.Conversation))
	b = appendTime(b, ',', "created_at", sent.CreatedAt)
	b = appendIDs(b, sent.IDs)
	if b = appendName(b, ',', "recipient"); !visible || len(sent.IDs) > 0 {
		return append(b, "null"...)
	}
	b = appendBool(b, '{', "online", s.config.Live.Online(sent.Recipient))
	b = appendTime(b, ',', "last_seen", seen)
	return append(appendInt(b, ',', "pending", sent.Ahead), '}')
}

// appendIDs appends the ids of the messages to a crew, if there are any.
func appendIDs(b []byte, ids []relay.MessageID) []byte {
	if len(ids) == 0 {
		return b
	}
	b = append(appendName(b, ',', "message_ids"), '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = relay.AppendString(b, string(id))
	}
	return append(b, ']')
}

// stored finds the 201 that a send with this Idempotency-Key got before. It continues when the client has gone:
// the nonce is used up, so if the send ended here, the same request would be refused if repeated.
func (s *Server) stored(in *input) (sent relay.Sent, known bool, err error) {
	return s.config.DB.Idempotent(context.Background(), in.key.Mecha.Number, in.idempotency, in.at)
}

// beginSend reads the Idempotency-Key of a send. mayReplay: the request may repeat a used nonce.
func (s *Server) beginSend(c *call) (mayReplay bool, err error) {
	values := c.Header["Idempotency-Key"]
	if len(values) == 0 || c.Method != http.MethodPost || c.URL.Path != "/api/v1/messages" {
		return false, nil
	}
	if len(values) > 1 || !isIdempotencyKey(values[0]) {
		return false, relay.Errorf(relay.InvalidIdempotencyKey,
			"Idempotency-Key must be sent once, with 1–128 printable ASCII characters")
	}
	return true, s.beginOnce(c.Context(), &c.input, values[0])
}

// beginOnce notes that a send with an Idempotency-Key is under way. If another one with
// the same key and body is, it waits for its end, since an HTTP library may have sent one
// request twice. After nil, in.done must follow.
func (s *Server) beginOnce(ctx context.Context, in *input, key string) error {
	in.idempotency = s.config.DB.IdempotencyKey(in.key.Mecha.Number, key, in.body)
	done := make(chan struct{})
	for {
		other, taken := s.sending.LoadOrStore(in.idempotency, done)
		if !taken {
			break
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	idempotency := in.idempotency
	in.endSend = func() {
		s.sending.Delete(idempotency)
		close(done)
	}
	return nil
}

func isIdempotencyKey(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 128
}

// getMessage answers GET /api/v1/messages/{messageId}: the record, for the sender
// and the recipient.
func (s *Server) getMessage(c *call) (answer, error) {
	m, err := s.config.DB.Message(c.Context(), c.key.Mecha.Number, c.messageID())
	if err != nil {
		return answer{}, err
	}
	return ok(AppendRecord(nil, m))
}

// getPayload answers GET /api/v1/messages/{messageId}/payload: the bytes exactly as
// they were sent, for the recipient.
func (s *Server) getPayload(c *call) (answer, error) {
	if err := s.reserve(c, s.payloadRoom()); err != nil {
		return answer{}, err
	}
	body, err := s.config.DB.Payload(c.Context(), c.key.Mecha.Number, c.messageID())
	return answer{status: http.StatusOK, body: body}, err
}

// acknowledge answers POST /api/v1/messages/{messageId}/ack, for the recipient.
func (s *Server) acknowledge(c *call) (answer, error) {
	a := &relay.Acknowledge{At: c.at, Key: c.key.Number, ID: c.messageID(), Nonce: c.claimed}
	if err := a.Read(c.body); err != nil {
		return answer{}, s.badAck(c, err)
	}
	out, err := s.config.DB.Acknowledge(a)
	if err != nil {
		return answer{}, err
	}
	b := appendField(nil, '{', "message_id", string(out.ID))
	b = appendField(b, ',', "state", out.State.String())
	b = appendField(b, ',', "status", out.Status)
	b = appendField(b, ',', "client_ts", out.ClientTS)
	b = appendTime(b, ',', "acknowledged_at", out.AcknowledgedAt)
	b = appendBool(b, ',', "duplicate", out.Duplicate)
	return ok(append(b, '}'))
}

// badAck chooses the error for an acknowledgement whose body cannot be read. The
// write decides who may acknowledge, but such a body never gets there, and 403 and
// 404 come before the faults of a body (PROTOCOL §2, Order of checks).
func (s *Server) badAck(c *call, fault error) error {
	m, err := s.config.DB.Message(c.Context(), c.key.Mecha.Number, c.messageID())
	switch {
	case relay.ErrorCode(err) == relay.NotAParty, err == nil && m.Recipient != c.key.Mecha.Number:
		return relay.Errorf(relay.RecipientOnly, "only the recipient of a message may acknowledge it")
	case err != nil:
		return err
	}
	return fault
}

// markDelivered answers POST /api/v1/messages/{messageId}/deliver, for the
// recipient. A body is ignored.
func (s *Server) markDelivered(c *call) (answer, error) {
	out, err := s.config.DB.MarkDelivered(&relay.MarkDelivered{At: c.at, Key: c.key.Number, ID: c.messageID(),
		Nonce: c.claimed})
	if err != nil {
		return answer{}, err
	}
	b := appendField(nil, '{', "message_id", string(out.ID))
	b = appendField(b, ',', "state", out.State.String())
	b = appendTime(b, ',', "delivered_at", out.DeliveredAt)
	return ok(append(b, '}'))
}

func (c *call) messageID() relay.MessageID { return relay.MessageID(c.params.ByName("messageId")) }
