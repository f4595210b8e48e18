package http

import (
	"context"
	"errors"
	"net/http"
	"time"

	"relay/db/relay"
	"relay/db/strict"
)

// sendMessage accepts a message: POST /api/v1/messages.
func (s *Server) sendMessage(c *call) (answer, error) {
	if c.idempotency != (relay.IdempotencyKey{}) {
		// Before any other check of the body (PROTOCOL §3): a retry gets the answer it missed.
		sent, known, err := s.stored(c)
		if err != nil || known {
			return created(sent), err
		}
	}
	m, err := decodeSend(c)
	if err != nil {
		return answer{}, err
	}
	if err := m.Validate(); err != nil {
		return answer{}, err
	}
	sent, err := s.DB.Send(m)
	if err != nil {
		return answer{}, err
	}
	return created(sent), nil
}

func created(sent relay.Sent) answer {
	b := make([]byte, 0, 160)
	b = appendField(b, '{', "message_id", string(sent.ID))
	b = appendField(b, ',', "conversation_id", string(sent.Conversation))
	b = appendTime(b, ',', "created_at", sent.CreatedAt)
	a := answer{status: http.StatusCreated, body: append(b, '}')}
	if sent.Replayed {
		a.header = []string{"Idempotent-Replayed", "true"}
	}
	return a
}

// stored finds the 201 that the Idempotency-Key of a send got before. A client
// that has gone does not stop it: the nonce is used up, so if nothing were sent
// now, the same request coming again would be refused.
func (s *Server) stored(c *call) (sent relay.Sent, known bool, err error) {
	return s.DB.Idempotent(context.WithoutCancel(c.Context()), c.key.Mecha.ID, c.idempotency, c.at)
}

// beginSend reads the Idempotency-Key of a send, and waits for another request
// with the same one that is under way: it may be the very request that an HTTP
// library is sending again. It tells whether a used nonce may pass.
func (s *Server) beginSend(c *call) (bool, error) {
	values := c.Header["Idempotency-Key"]
	if len(values) == 0 || c.Method != http.MethodPost || c.URL.Path != "/api/v1/messages" {
		return false, nil
	}
	if len(values) > 1 || !isIdempotencyKey(values[0]) {
		return false, relay.Errorf(relay.InvalidIdempotencyKey, "Idempotency-Key must come once, as 1–128 printable ASCII characters")
	}
	c.idempotency = s.DB.IdempotencyKey(c.key.Mecha.ID, values[0], c.body)
	done := make(chan struct{})
	for {
		other, taken := s.sending.LoadOrStore(c.idempotency, done)
		if !taken {
			break
		}
		select {
		case <-other.(chan struct{}):
		case <-c.Context().Done():
			return false, c.Context().Err()
		}
	}
	c.release = func() {
		s.sending.Delete(c.idempotency)
		close(done)
	}
	return true, nil
}

func isIdempotencyKey(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 128
}

var sendFields = []string{"version", "from", "to", "payload", "message_type", "priority",
	"conversation_id", "correlation_id", "expires_at", "ttl_seconds"}

const maxTTL = 100 * 365 * 24 * 60 * 60 // seconds

// decodeSend reads the envelope. Unknown fields are ignored; null and "" in an
// optional field are the same as leaving it out.
func decodeSend(c *call) (*relay.SendMessage, error) {
	m := &relay.SendMessage{At: c.at, Key: c.key, Signed: c.signed, Nonce: c.claimed, Idempotency: c.idempotency, OnlyReplay: c.replay}
	var from, to, conversation, expires string
	var ttl int64
	err := strict.ReadObject(c.body, sendFields, func(name string, value []byte) (err error) {
		switch name {
		case "from":
			err = readString(name, value, &from)
		case "to":
			err = readString(name, value, &to)
		case "version":
			err = readString(name, value, &m.Version)
		case "message_type":
			err = readString(name, value, &m.Type)
		case "priority":
			err = readString(name, value, &m.Priority)
		case "conversation_id":
			err = readString(name, value, &conversation)
		case "correlation_id":
			err = readString(name, value, &m.CorrelationID)
		case "expires_at":
			err = readString(name, value, &expires)
		case "ttl_seconds":
			err = readTTL(value, &ttl)
		case "payload":
			m.Payload = value
		}
		return err
	})
	if err != nil {
		return nil, badJSON(err)
	}
	m.Conversation = relay.ConversationID(conversation)
	if err := setExpiry(m, expires, ttl); err != nil {
		return nil, err
	}
	if from != "" && from != string(c.key.Mecha.Address) {
		if _, err := relay.ParseAddress(from); err != nil {
			return nil, named("from", err)
		}
		return nil, relay.Errorf(relay.SenderMismatch, "from is %s, but the key is that of %s; leave from out, or use its own", from, c.key.Mecha.Address)
	}
	if to == "" {
		return nil, relay.FieldErrorf(relay.InvalidRequest, "to", "is required: the recipient's address, as in planner^acme")
	}
	if m.To, err = relay.ParseAddress(to); err != nil {
		return nil, named("to", err)
	}
	if !strict.IsObject(m.Payload) {
		return nil, relay.FieldErrorf(relay.InvalidRequest, "payload", "is required, and must be a JSON object")
	}
	return m, nil
}

func setExpiry(m *relay.SendMessage, expires string, ttl int64) (err error) {
	switch {
	case expires != "" && ttl != 0:
		return relay.FieldErrorf(relay.InvalidRequest, "ttl_seconds", "stands beside expires_at; send one of them")
	case ttl != 0:
		m.ExpiresAt = m.At.Add(time.Duration(ttl) * time.Second)
	case expires != "":
		if m.ExpiresAt, err = relay.ParseTime(expires); err != nil {
			return relay.FieldErrorf(relay.InvalidTime, "expires_at", "is no RFC 3339 time")
		}
		if m.ExpiresAt.IsZero() || !m.ExpiresAt.After(m.At) {
			return relay.FieldErrorf(relay.InvalidTime, "expires_at", "lies in the past: the relay's clock says %s", relay.FormatTime(m.At))
		}
	}
	return nil
}

func readTTL(value []byte, ttl *int64) error {
	if strict.IsNull(value) || string(value) == `""` {
		return nil
	}
	n, ok := strict.Int(value)
	if !ok || n < 1 || n > maxTTL {
		return relay.FieldErrorf(relay.InvalidRequest, "ttl_seconds", "must be a whole number of seconds from 1 to %d", int64(maxTTL))
	}
	*ttl = n
	return nil
}

// readString reads an optional string field; null leaves it as it is.
func readString(name string, value []byte, to *string) error {
	if strict.IsNull(value) {
		return nil
	}
	text, ok := strict.String(value)
	if !ok {
		return relay.FieldErrorf(relay.InvalidRequest, name, "must be a string")
	}
	*to = text
	return nil
}

// badJSON gives a fault of the JSON text its code; other errors pass.
func badJSON(err error) error {
	var syntax *strict.SyntaxError
	if errors.As(err, &syntax) {
		return relay.Errorf(relay.InvalidJSON, "%s", syntax.Error())
	}
	return err
}

// named says which field an address error is about.
func named(field string, err error) error {
	var e *relay.Error
	if errors.As(err, &e) {
		e.Fields = []relay.FieldError{{Field: field, Reason: e.Detail}}
	}
	return err
}

// getMessage answers GET /api/v1/messages/{messageId}: the record, for both parties.
func (s *Server) getMessage(c *call) (answer, error) {
	m, err := s.DB.Message(c.Context(), c.key.Mecha.ID, c.messageID())
	if err != nil {
		return answer{}, err
	}
	return ok(AppendRecord(nil, m))
}

// getPayload answers GET /api/v1/messages/{messageId}/payload: the exact bytes, for the recipient.
func (s *Server) getPayload(c *call) (answer, error) {
	body, err := s.DB.Payload(c.Context(), c.key.Mecha.ID, c.messageID())
	return answer{status: http.StatusOK, body: body}, err
}

// acknowledge answers POST /api/v1/messages/{messageId}/ack.
func (s *Server) acknowledge(c *call) (answer, error) {
	a := &relay.Acknowledge{At: c.at, Key: c.key, ID: c.messageID(), Nonce: c.claimed}
	if err := s.mayAnswer(c); err != nil {
		return answer{}, err
	}
	if err := a.Read(c.body); err != nil {
		return answer{}, err
	}
	out, err := s.DB.Acknowledge(a)
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

// mayAnswer refuses whoever is not the recipient before the body is looked at.
func (s *Server) mayAnswer(c *call) error {
	m, err := s.DB.Message(c.Context(), c.key.Mecha.ID, c.messageID())
	if relay.ErrorCode(err) == relay.NotAParty || err == nil && m.Recipient != c.key.Mecha.ID {
		return relay.Errorf(relay.RecipientOnly, "only the recipient of a message may answer for it")
	}
	return err
}

// markDelivered answers POST /api/v1/messages/{messageId}/deliver. Its body, if any, means nothing.
func (s *Server) markDelivered(c *call) (answer, error) {
	out, err := s.DB.MarkDelivered(&relay.MarkDelivered{At: c.at, Key: c.key, ID: c.messageID(), Nonce: c.claimed})
	if err != nil {
		return answer{}, err
	}
	b := appendField(nil, '{', "message_id", string(out.ID))
	b = appendField(b, ',', "state", out.State.String())
	b = appendTime(b, ',', "delivered_at", out.DeliveredAt)
	return ok(append(b, '}'))
}

func (c *call) messageID() relay.MessageID { return relay.MessageID(c.params.ByName("messageId")) }

// whoami answers GET /api/v1/whoami: how a client that holds only a key learns its address.
func (s *Server) whoami(c *call) (answer, error) {
	b := appendField(nil, '{', "mecha_id", string(c.key.Mecha.Address))
	b = appendField(b, ',', "key_id", string(c.key.ID))
	b = appendField(b, ',', "label", c.key.Label)
	b = appendTime(b, ',', "expires_at", c.key.ExpiresAt)
	b = appendBool(b, ',', "signature_required", s.RequireSignature)
	b = appendTime(b, ',', "server_time", c.at)
	return ok(append(b, '}'))
}
