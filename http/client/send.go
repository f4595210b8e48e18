package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"relay/db/relay"
)

// SendOptions are the parts of a message other than its recipient and its payload (PROTOCOL §3,
// Send). The zero value is a message without any of it.
type SendOptions struct {
	Type           string        // default: message; of a reply: reply
	Priority       string        // default: normal
	ConversationID string        // default: that of InReplyTo, or a new one
	CorrelationID  string        // goes with the message
	InReplyTo      string        // the id of the message that this one answers
	TTL            time.Duration // after which the message expires; fractions of seconds are rounded up
	AckBy          time.Duration // after which the relay tells that the message is not acknowledged; rounded up
	MaxMessages    int           // that the conversation may hold which this message begins
	SearchID       string        // the Found.ID of the search that found the recipient; searches learn from it

	// IdempotencyKey names the message for 24 hours: the same message with the same key is sent once, even by
	// another process. Default: a random one.
	IdempotencyKey string
	// Timeout is for how long Send tries if the relay is away or overloaded, and for how
	// long Ask waits for the answer. Default: a minute. Below zero, Send tries once, for at most
	// 30 seconds. A relay that takes the request and does not answer costs AttemptSlack more.
	Timeout time.Duration
	// Question says that Sent.AwaitReply will wait for the answer. In a conversation that
	// exists, the message then has a CorrelationID, unless you give one, so that the answer is
	// told from what else is said there. Otherwise it has a ConversationID. Both are marks by
	// which a listener in another process leaves the answer to this one; see Listen.
	Question bool
}

const (
	defaultTimeout = time.Minute
	sendPause      = 2 * time.Second // at most, between attempts
)

// Sent is a message that the relay has on its disk.
type Sent struct {
	MessageID      string   `json:"message_id"`
	MessageIDs     []string `json:"message_ids"` // of a message to a crew: all ids
	ConversationID string   `json:"conversation_id"`
	Recipient      *Presence
	Replayed       bool `json:"-"` // an earlier request with the same Idempotency-Key has sent it

	JSON json.RawMessage `json:"-"` // the whole answer

	out *outgoing
}

// Presence reports whether somebody listens.
type Presence struct {
	Online   bool
	LastSeen string `json:"last_seen"` // RFC 3339; "" if it was never seen
	Pending  int    // how many messages wait before this one
}

// SendError says that a message is not known to be sent. It wraps the last attempt's
// error.
type SendError struct {
	// Unknown is set if the message may have been sent anyway. To send it again with the same
	// IdempotencyKey, and nothing else changed, sends it now or finds that it was.
	Unknown        bool
	IdempotencyKey string
	Err            error
}

func (e *SendError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the last attempt: a *Refusal, or what Do returns.
func (e *SendError) Unwrap() error { return e.Err }

// Send sends a message to an address, or to all Mechas of a crew by *^crew. payload is a
// JSON object: a []byte or a json.RawMessage is sent byte for byte, anything else as
// json.Marshal has it. At most one SendOptions counts.
//
// When Send returns no error, the message is on the relay's disk. If the relay does not
// answer, restarts or is overloaded, Send tries again, always with the same
// Idempotency-Key, so the message is sent once. The error is a *SendError, a *ConfigError if an
// option is negative, or tells that the payload cannot be marshalled.
func (c *Client) Send(ctx context.Context, to string, payload any, options ...SendOptions) (*Sent, error) {
	m, err := c.outgoing(to, payload, single(options))
	if err != nil {
		return nil, err
	}
	return m.send(ctx)
}

func single(options []SendOptions) SendOptions {
	if len(options) == 0 {
		return SendOptions{}
	}
	return options[0]
}

// outgoing is a message to send.
type outgoing struct {
	c       *Client
	to      string
	body    []byte
	key     string // the Idempotency-Key
	timeout time.Duration

	conversation, correlation string
}

func (c *Client) outgoing(to string, payload any, o SendOptions) (*outgoing, error) {
	if field := o.negative(); field != "" {
		return nil, &ConfigError{field, "must not be negative"}
	}
	o.IdempotencyKey = cmp.Or(o.IdempotencyKey, rand.Text())
	if o.Question {
		mark := markFor(to, o.IdempotencyKey)
		if o.ConversationID == "" && o.InReplyTo == "" {
			o.ConversationID = mark
		} else {
			o.CorrelationID = cmp.Or(o.CorrelationID, mark)
		}
	}
	raw, err := payloadBytes(payload)
	if err != nil {
		return nil, err
	}
	body, err := WithPayload(struct {
		To             string `json:"to"`
		Type           string `json:"message_type,omitempty"`
		Priority       string `json:"priority,omitempty"`
		ConversationID string `json:"conversation_id,omitempty"`
		CorrelationID  string `json:"correlation_id,omitempty"`
		InReplyTo      string `json:"in_reply_to,omitempty"`
		TTL            int64  `json:"ttl_seconds,omitempty"`
		AckBy          int64  `json:"ack_by_seconds,omitempty"`
		MaxMessages    int    `json:"max_messages,omitempty"`
		SearchID       string `json:"search_id,omitempty"`
	}{to, o.Type, o.Priority, o.ConversationID, o.CorrelationID, o.InReplyTo, seconds(o.TTL), seconds(o.AckBy),
		o.MaxMessages, o.SearchID}, raw)
	return &outgoing{c: c, to: to, body: body, key: o.IdempotencyKey, timeout: cmp.Or(o.Timeout, defaultTimeout),
		conversation: o.ConversationID, correlation: o.CorrelationID}, err
}

// negative names the option that is below 0 and must not be, or "".
func (o *SendOptions) negative() string {
	switch {
	case o.TTL < 0:
		return "TTL"
	case o.AckBy < 0:
		return "AckBy"
	case o.MaxMessages < 0:
		return "MaxMessages"
	}
	return ""
}

// seconds rounds up: what is to last for half a second must not last forever.
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

func payloadBytes(payload any) ([]byte, error) {
	switch p := payload.(type) {
	case []byte:
		return p, nil
	case json.RawMessage:
		return p, nil
	}
	return marshal(payload)
}

// send sends the message once, with as many attempts as it takes.
func (m *outgoing) send(ctx context.Context) (sent *Sent, err error) {
	unknown := false
	err = Retry(ctx, m.timeout, func(ctx context.Context) error {
		sent, _, err = m.post(ctx, -1)
		unknown = unknown || err != nil && !NothingDone(err)
		return err
	})
	if err != nil {
		return nil, &SendError{Unknown: unknown, IdempotencyKey: m.key, Err: err}
	}
	return sent, nil
}

// held is what the relay says about the reply to a message that it was asked to wait for.
type held struct {
	reply *Message // nil: not sent yet
	asked bool     // the relay has waited, or looked; else it is to be asked again after a pause
	known bool     // the relay knows Prefer: wait
}

// post makes one attempt. With a hold of 0 and more, the relay holds its answer for so
// long until the reply is there.
func (m *outgoing) post(ctx context.Context, hold time.Duration) (*Sent, held, error) {
	header := http.Header{"Idempotency-Key": {m.key}}
	if hold >= 0 {
		header.Set("Prefer", "wait="+strconv.Itoa(int(hold/time.Second)))
	}
	ctx, cancel := Attempt(ctx, 0, max(hold, 0))
	defer cancel()
	resp, err := m.c.Do(ctx, "POST", "/api/v1/messages", m.body, header)
	if err == nil {
		err = resp.Err()
	}
	if err != nil {
		return nil, held{}, err
	}
	sent := &Sent{JSON: resp.Body, Replayed: resp.Header.Get("Idempotent-Replayed") == "true", out: m}
	var with struct{ Reply json.RawMessage }
	if err := errors.Join(json.Unmarshal(resp.Body, sent), json.Unmarshal(resp.Body, &with)); err != nil {
		return nil, held{}, fmt.Errorf("the answer is not that of a relay: %w", err)
	}
	h := held{asked: resp.Header.Get("Preference-Applied") != "", known: with.Reply != nil}
	if h.known && string(with.Reply) != "null" {
		h.reply, err = m.c.messageOf(with.Reply)
	}
	return sent, h, err
}

// ErrRecipientNotFound and the others are refusals to compare with, by errors.Is. A
// *Refusal with the code, which errors.As finds, has the rest: with
// ErrRecipientNotFound, DidYouMean.
var (
	ErrRecipientNotFound error = &Refusal{Code: relay.RecipientNotFound}
	ErrNotAccepted       error = &Refusal{Code: relay.NotAccepted}      // the recipient takes nothing from this sender
	ErrMailboxFull       error = &Refusal{Code: relay.MailboxFull}      // too much waits for the recipient
	ErrConversationFull  error = &Refusal{Code: relay.ConversationFull} // it holds as many messages as it may
	ErrMessageNotFound   error = &Refusal{Code: relay.MessageNotFound}
	ErrKeyRevoked        error = &Refusal{Code: relay.KeyRevoked}
	ErrUnknownKey        error = &Refusal{Code: relay.UnknownKey}
)
