package relay

import (
	"errors"
	"time"

	"relay/db/strict"
)

var sendFields = []string{"version", "from", "to", "payload", "message_type", "priority",
	"conversation_id", "correlation_id", "expires_at", "ttl_seconds", "in_reply_to", "ack_by_seconds",
	"max_messages", "search_id"}

const maxTTL = 100 * 365 * 24 * 60 * 60 // seconds

// Read reads the JSON body of a request (PROTOCOL §3, Send) into m and validates m.
// At must be set before. own is the address of the sender's key. Unknown fields are
// ignored; null and "" in an optional field mean the same as leaving it out. Payload
// refers to bytes of body. Errors: InvalidJSON, InvalidAddress, SenderMismatch, and
// those of Validate.
func (m *SendMessage) Read(body []byte, own Address) error {
	var from, to, expires string
	var ttl, ackBy, limit int64
	err := ReadObject(body, sendFields, func(name string, value []byte) (err error) {
		switch name {
		case "from":
			err = readText(name, value, &from)
		case "to":
			err = readText(name, value, &to)
		case "version":
			err = readText(name, value, &m.Version)
		case "message_type":
			err = readText(name, value, &m.Type)
		case "priority":
			err = readText(name, value, &m.Priority)
		case "conversation_id":
			err = readText(name, value, &m.Conversation)
		case "correlation_id":
			err = readText(name, value, &m.CorrelationID)
		case "expires_at":
			err = readText(name, value, &expires)
		case "ttl_seconds":
			err = readWhole(name, value, "seconds ", maxTTL, &ttl)
		case "in_reply_to":
			err = readText(name, value, &m.InReplyTo)
		case "ack_by_seconds":
			err = readWhole(name, value, "seconds ", int64(MaxAckBy/time.Second), &ackBy)
		case "max_messages":
			err = readWhole(name, value, "", MaxMessages, &limit)
		case "search_id":
			err = readText(name, value, &m.SearchID)
		case "payload":
			m.Payload = value
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := m.setExpiry(expires, ttl); err != nil {
		return err
	}
	if m.MaxMessages = int(limit); ackBy != 0 {
		m.AckBy = m.At.Add(time.Duration(ackBy) * time.Second)
	}
	if from != "" && from != string(own) {
		if _, err := ParseAddress(from); err != nil {
			return Named("from", err)
		}
		return Errorf(SenderMismatch, "from is %s, but the key is that of %s; leave from out, or use its own", from, own)
	}
	if to == "" {
		return FieldErrorf(InvalidRequest, "to", "is required: the recipient's address, as in planner^acme")
	}
	if m.To, err = ParseRecipient(to); err != nil {
		return Named("to", err)
	}
	if !strict.IsObject(m.Payload) {
		return FieldErrorf(InvalidRequest, "payload", "is required, and must be a JSON object")
	}
	return m.Validate()
}

func (m *SendMessage) setExpiry(expires string, ttl int64) (err error) {
	switch {
	case expires != "" && ttl != 0:
		return FieldErrorf(InvalidRequest, "ttl_seconds", "cannot be combined with expires_at; send one of them")
	case ttl != 0:
		m.ExpiresAt = m.At.Add(time.Duration(ttl) * time.Second)
	case expires != "":
		if m.ExpiresAt, err = ParseTime(expires); err != nil {
			return FieldErrorf(InvalidTime, "expires_at", "is not an RFC 3339 time")
		}
		if m.ExpiresAt.IsZero() { // the zero time would mean that the message never expires
			return errPast("expires_at", m.At)
		}
	}
	return nil
}

// readWhole reads an optional member that is a whole number from 1 to limit. of names the
// unit, as in "seconds ". null and "" leave *to unchanged.
func readWhole(name string, value []byte, of string, limit int64, to *int64) error {
	return readRange(name, value, of, 1, limit, to)
}

// readRange is readWhole for a number from least to limit.
func readRange(name string, value []byte, of string, least, limit int64, to *int64) error {
	if strict.IsNull(value) || string(value) == `""` {
		return nil
	}
	n, ok := strict.Int(value)
	if !ok || n < least || n > limit {
		if of != "" {
			of = "of " + of
		}
		return FieldErrorf(InvalidRequest, name, "must be a whole number %sfrom %d to %d", of, least, limit)
	}
	*to = n
	return nil
}

// Named adds the name of the faulty field to err, an error of ParseAddress, and
// returns it.
func Named(field string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		e.Fields = []FieldError{{Field: field, Reason: e.Detail}}
	}
	return err
}
