package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/relay"
)

// Message is a message as a Mecha received it, or as its record says. The program
// may read the fields; the methods may be called concurrently.
type Message struct {
	ID             string
	ConversationID string
	Sender         string // an address
	To             string
	Type           string
	Priority       string
	CorrelationID  string
	InReplyTo      string          // the message that this one answers
	Payload        json.RawMessage // the sender's bytes; nil if the relay has not given them
	SentAt         time.Time       // when the relay accepted it
	Attempt        int             // 1, and more if the message is redelivered after a deferral or a lease
	Signed         bool            // the relay has verified a signature; not known of a message that a socket has brought
	State          string          // of a record, as in queued; "" if a socket has brought the message
	// of a record: the recipient's latest word, as in completed, and why, or ""
	Status, Detail string
	JSON           json.RawMessage // of a record: all of it

	c     *Client
	task  *task // of the listener that handles the message, or nil
	keys  *replyKeys
	ended *atomic.Bool // without a task: Ack or Defer has had the last word
}

// Decode stores the payload in v, as json.Unmarshal does.
func (m *Message) Decode(v any) error { return json.Unmarshal(m.Payload, v) }

// frame is what a relay tells of a message: a frame of a WebSocket, or a record.
type frame struct {
	Type           string          `json:"type"`
	MessageID      string          `json:"message_id"`
	ConversationID string          `json:"conversation_id"`
	From           string          `json:"from"`
	To             string          `json:"to"`
	MessageType    string          `json:"message_type"`
	Priority       string          `json:"priority"`
	CorrelationID  string          `json:"correlation_id"`
	InReplyTo      string          `json:"in_reply_to"`
	CreatedAt      string          `json:"created_at"`
	PayloadBase64  []byte          `json:"payload_base64"` // in a frame
	Payload        json.RawMessage `json:"payload"`        // in a record
	Attempt        int             `json:"attempt"`        // 0 is the first
	Signed         bool            `json:"signed"`
	State          string          `json:"state"`
	Phase          string          `json:"phase"` // in a frame "sync"
	Ack            *struct{ Status, Detail string }
}

// message makes the Message of a frame.
func (c *Client) message(f *frame) *Message {
	m := &Message{
		ID: f.MessageID, ConversationID: f.ConversationID, Sender: f.From, To: f.To, Type: f.MessageType,
		Priority:      f.Priority,
		CorrelationID: f.CorrelationID, InReplyTo: f.InReplyTo, Payload: f.Payload, Attempt: max(f.Attempt, 1),
		Signed: f.Signed, State: f.State, c: c, keys: &replyKeys{}, ended: &atomic.Bool{},
	}
	if f.PayloadBase64 != nil {
		m.Payload = f.PayloadBase64
	}
	if f.Ack != nil {
		m.Status, m.Detail = f.Ack.Status, f.Ack.Detail
	}
	m.SentAt, _ = relay.ParseTime(f.CreatedAt) // a relay writes no other form
	return m
}

// messageOf makes the Message of a record.
func (c *Client) messageOf(record json.RawMessage) (*Message, error) {
	var f frame
	if err := json.Unmarshal(record, &f); err != nil {
		return nil, err
	}
	m := c.message(&f)
	m.JSON = record
	return m, nil
}

func messagePath(id, rest string) string { return "/api/v1/messages/" + url.PathEscape(id) + rest }

// Record reads the record of a message that this Mecha has sent or received,
// without its payload.
func (c *Client) Record(ctx context.Context, id string) (*Message, error) {
	var record json.RawMessage
	if err := c.Call(ctx, "GET", messagePath(id, ""), nil, &record); err != nil {
		return nil, err
	}
	return c.messageOf(record)
}

// Message reads a message that this Mecha has sent or received; with its payload,
// if the Mecha is the recipient.
func (c *Client) Message(ctx context.Context, id string) (*Message, error) {
	m, err := c.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	err = c.Call(ctx, "GET", messagePath(id, "/payload"), nil, &m.Payload)
	if Refused(err, relay.RecipientOnly) {
		err = nil
	}
	return m, err
}

// Acked is the relay's answer to an acknowledgement.
type Acked struct {
	MessageID string `json:"message_id"`
	State     string `json:"state"` // of the message, after it
	Status    string `json:"status"`
	Duplicate bool   `json:"duplicate"` // the message had this status before

	JSON json.RawMessage `json:"-"` // the whole answer
}

// Ack acknowledges a message that this Mecha has received (PROTOCOL §3, Ack), by one
// request. detail says why; it may be empty. To repeat an acknowledgement does no harm.
// [Message.Ack] is the same with as many requests as it takes.
func (c *Client) Ack(ctx context.Context, id, status, detail string) (*Acked, error) {
	return c.ack(ctx, id, acknowledgement{Status: status, Detail: detail})
}

// acknowledgement is the body of an ack.
type acknowledgement struct {
	Status     string `json:"status"`
	ClientTS   string `json:"client_ts"`
	Detail     string `json:"detail,omitempty"`
	RetryAfter int64  `json:"retry_after_seconds,omitempty"`
}

// hasLastWord reports whether nothing may be acknowledged after it: it is final, or defers the message, and a
// later status would undo that.
func (a *acknowledgement) hasLastWord() bool {
	return !relay.ReportsProgress(a.Status) || a.RetryAfter > 0
}

func (c *Client) ack(ctx context.Context, id string, a acknowledgement) (*Acked, error) {
	a.ClientTS = relay.FormatTime(time.Now())
	out := &Acked{}
	if err := c.Call(ctx, "POST", messagePath(id, "/ack"), a, &out.JSON); err != nil {
		return nil, err
	}
	return out, json.Unmarshal(out.JSON, out)
}

// Ack acknowledges the message, and tries again until the relay has taken it: in the
// handler of a listener until ctx ends, else for a minute. completed, failed and
// rejected are final; a listener then acknowledges nothing more. received and
// processing report progress. detail, of at most 1,024 bytes, says why.
func (m *Message) Ack(ctx context.Context, status, detail string) error {
	return m.acknowledge(ctx, acknowledgement{Status: status, Detail: detail})
}

// Defer defers the message: it is redelivered after d, with Attempt one higher. d is at most 7 days. Fractions
// of seconds are rounded up, and less than a second, even a negative d, counts as one: time.Until gives that of
// a moment that has just passed. The listener, or Working, then acknowledges nothing more.
func (m *Message) Defer(ctx context.Context, d time.Duration) error {
	return m.acknowledge(ctx, acknowledgement{Status: relay.Deferred, RetryAfter: max(seconds(d), 1)})
}

func (m *Message) acknowledge(ctx context.Context, a acknowledgement) error {
	if m.task != nil {
		return m.task.acknowledge(ctx, m, a)
	}
	err := Retry(ctx, defaultTimeout, func(ctx context.Context) error {
		_, err := m.c.ack(ctx, m.ID, a)
		return err
	})
	if err == nil && a.hasLastWord() {
		m.ended.Store(true)
	}
	return err
}

// Reply answers the message: to its sender, in its conversation, with its
// correlation_id. payload and options are as in [Client.Send]; the type is reply unless
// they say otherwise. The answer names the message, so [Client.Ask] finds it.
//
// The same answer, sent again by the program that gets the message again, as after a crash, is
// sent once. An answer that differs in any byte is a further one: an agent whose answers vary
// may answer twice after a crash. The same answer twice for one Message is two answers.
//
// In the handler of a listener, Reply tries until ctx ends, and a listener that has answered
// too often in the conversation gets *TooManyReplies.
func (m *Message) Reply(ctx context.Context, payload any, options ...SendOptions) error {
	o := single(options)
	o.InReplyTo, o.ConversationID, o.CorrelationID, o.Question = m.ID, m.ConversationID, m.CorrelationID, false
	if m.task != nil {
		return m.task.reply(ctx, m, payload, o)
	}
	o.Type = cmp.Or(o.Type, DefaultReplyType)
	return m.answer(payload, o, func(out *outgoing) error {
		_, err := out.send(ctx)
		return err
	})
}

// answer makes an answer with its Idempotency-Key, and calls send, which sends it.
func (m *Message) answer(payload any, o SendOptions, send func(*outgoing) error) error {
	out, err := m.c.outgoing(m.Sender, payload, o)
	if err != nil {
		return err
	}
	if o.IdempotencyKey != "" {
		return send(out)
	}
	sum := digest(sha256.Sum256(out.body))
	n := m.keys.take(sum)
	out.key = fmt.Sprintf("reply-%s-%x-%d", m.ID, sum[:8], n)
	if err = send(out); err != nil {
		m.keys.giveBack(sum, n)
	}
	return err
}

// DefaultReplyType is the message type of answers.
const DefaultReplyType = "reply"

type digest [sha256.Size]byte

// replyKeys count the answers to a message that have the same bytes. Safe for concurrent use.
type replyKeys struct {
	mu     sync.Mutex
	taken  map[digest]int   // the highest number
	unused map[digest][]int // lower numbers, of answers that were not sent
}

// take returns the number of one more answer; the first one is 1.
func (k *replyKeys) take(sum digest) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if free := k.unused[sum]; len(free) > 0 {
		n, k.unused[sum] = free[len(free)-1], free[:len(free)-1]
		return n
	}
	if k.taken == nil {
		k.taken, k.unused = map[digest]int{}, map[digest][]int{}
	}
	k.taken[sum]++
	return k.taken[sum]
}

// giveBack says that an answer was not sent, or perhaps: the next one takes its number.
func (k *replyKeys) giveBack(sum digest, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unused[sum] = append(k.unused[sum], n)
}

// Working does the work for a message that came from somewhere else than a listener, as
// from [Client.Inbox]: it acknowledges the message as processing, calls f, and then
// acknowledges it as completed, or as failed with the text of f's error, which it returns.
// If ctx has ended meanwhile, the message stays pending. If f has acknowledged or deferred the
// message itself, Working adds nothing.
func (m *Message) Working(ctx context.Context, f func(context.Context) error) error {
	if err := m.Ack(ctx, relay.Processing, ""); err != nil {
		return err
	}
	err := f(ctx)
	switch {
	case m.hasEnded():
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		_ = m.Ack(ctx, "failed", Detail(err)) // what f says matters more
		return err
	}
	return m.Ack(ctx, "completed", "")
}

// hasEnded reports whether Ack or Defer has had the last word about the message.
func (m *Message) hasEnded() bool {
	if m.task != nil {
		return m.task.hasEnded()
	}
	return m.ended.Load()
}

// Trace is what the relay knows of the life of a message (PROTOCOL §3, Trace).
type Trace struct {
	Steps   []Step
	Verdict Verdict
}

// Step is one event in the life of a message. Which fields it has depends on What.
type Step struct {
	At                     string // RFC 3339
	What                   string // as in accepted
	Status, Detail, Worker string
	Sockets                int
}

// Verdict says why there is no answer to a message, or where it is.
type Verdict struct {
	Code  relay.VerdictCode
	Text  string // a sentence for people
	Since string // RFC 3339; "" if it is not known
}

// Trace asks why there is no answer to a message that this Mecha has sent or received.
func (c *Client) Trace(ctx context.Context, id string) (*Trace, error) {
	t := &Trace{}
	return t, c.Call(ctx, "GET", messagePath(id, "/trace"), nil, t)
}

// Trace asks what the relay knows of the message's life.
func (m *Message) Trace(ctx context.Context) (*Trace, error) { return m.c.Trace(ctx, m.ID) }

// WithPayload marshals fields, a struct of which at least one is not left out, and adds the
// payload as a last one, byte for byte: json.Marshal would compact it.
func WithPayload(fields any, payload []byte) ([]byte, error) {
	b, err := marshal(fields)
	if err != nil {
		return nil, err
	}
	b = append(b[:len(b)-1], `,"payload":`...)
	return append(append(b, payload...), '}'), nil
}

// marshal is json.Marshal, but leaves <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
