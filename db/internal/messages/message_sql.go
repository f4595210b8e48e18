// Package messages is the room that reads messages: one by its id, the history of a Mecha, the stream
// of what is new for it, receipts, replies, and the state of an attempt.
//
// All its functions read a consistent snapshot (engine.Rx), and a write may call them in its
// transaction. A Right decides who may see a message. Long reads are done in pieces, so that nobody
// waits for more than a piece of another's read: ReadPage, Stream and Returned say where the next one
// begins.
package messages

import (
	"context"
	"fmt"
	"math"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// messageColumns are the columns of a record, in the order that readMessage expects.
const messageColumns = `m.position, m.recipient, m.sender, m.state, m.type, m.priority, m.version, m.conversation,
	m.correlation_id, m.expires_at, m.signed, m.payload_bytes, m.payload_sha256, m.delivered_at, m.acknowledged_at,
	m.ack, a.status, a.client_ts, a.detail, m.in_reply_to, m.ack_by, m.traceparent, m.tracestate`

const messageTables = `message m LEFT JOIN receipt a ON a.position = m.ack`

// readMessage makes the record of the present row.
func readMessage(x *engine.Rx, r *sqlite.Rows) (*relay.Message, error) {
	m := &relay.Message{
		Position: relay.Position(r.Int(0)), Recipient: relay.MechaNumber(r.Int(1)), Sender: relay.MechaNumber(r.Int(2)),
		State:         relay.State(r.Int(3)),
		CorrelationID: r.Text(8), ExpiresAt: relay.UnixMilli(r.Int(9)), Signed: r.Int(10) != 0, PayloadBytes: int(r.Int(11)),
		DeliveredAt: relay.UnixMilli(r.Int(13)), AcknowledgedAt: relay.UnixMilli(r.Int(14)),
	}
	if m.State < relay.Queued || m.State > relay.Expired {
		return nil, fmt.Errorf("%w: the message at position %d has the state %d, which does not exist",
			sqlite.ErrDamaged, m.Position, m.State)
	}
	copy(m.PayloadSHA256[:], r.Blob(12))
	m.ID, m.CreatedAt = x.IDs.Message(m.Position), m.Position.Time()
	if m.State.Pending() && !m.ExpiresAt.IsZero() && !m.ExpiresAt.After(x.Now) {
		m.State = relay.Expired
	}
	readSent(x, r, m)
	if !r.Null(15) {
		if r.Null(16) {
			return nil, fmt.Errorf("%w: the message at position %d names the acknowledgement %d, but there is no such receipt",
				sqlite.ErrDamaged, m.Position, r.Int(15))
		}
		m.Ack = &relay.Ack{ClientTS: r.Text(17), At: relay.Position(r.Int(15)).Time(), Detail: r.Text(18)}
	}
	return m, readNames(x, r, m)
}

// readSent sets the fields that few messages have.
func readSent(x *engine.Rx, r *sqlite.Rows, m *relay.Message) {
	if p := r.Int(19); p != 0 {
		m.InReplyTo = x.IDs.Message(relay.Position(p))
	}
	if by := r.Int(20); by != 0 {
		m.AckBy = relay.UnixMilli(by)
		m.Overdue = m.State.Pending() && !m.AckBy.After(x.Now)
	}
	if !r.Null(21) {
		m.Trace = relay.Trace{Parent: r.Text(21), State: r.Text(22)}
	}
}

// readNames sets the strings for which the row has numbers.
func readNames(x *engine.Rx, r *sqlite.Rows, m *relay.Message) error {
	for _, w := range [...]struct {
		to *string
		id int64
	}{{&m.Type, r.Int(4)}, {&m.Priority, r.Int(5)}, {&m.Version, r.Int(6)}} {
		text, err := engine.Word(x, w.id)
		if err != nil {
			return err
		}
		*w.to = text
	}
	if m.Ack != nil {
		text, err := engine.Word(x, r.Int(16))
		if err != nil {
			return err
		}
		m.Ack.Status = text
	}
	var err error
	if m.From, err = engine.Address(x, int64(m.Sender)); err != nil {
		return err
	}
	if m.To, err = engine.Address(x, int64(m.Recipient)); err != nil {
		return err
	}
	m.Conversation, err = ConversationID(x, r.Int(7), m.Position)
	return err
}

// ConversationID returns the id of the conversation of the message at p. number is the
// column message.conversation.
func ConversationID(x *engine.Rx, number int64, p relay.Position) (relay.ConversationID, error) {
	switch {
	case number == 0:
		return x.IDs.Conversation(p), nil
	case number > 0:
		return x.IDs.Conversation(relay.Position(number)), nil
	}
	label, err := engine.Word(x, -number)
	return relay.ConversationID(label), err
}

// At reads the record at a position, or returns nil.
func At(x *engine.Rx, p relay.Position) (*relay.Message, error) {
	r := x.C.Query("SELECT "+messageColumns+" FROM "+messageTables+" WHERE m.position = ?", int64(p))
	var m *relay.Message
	var err error
	if r.Next() {
		m, err = readMessage(x, r)
	}
	if end := r.Close(); err == nil {
		err = end
	}
	return m, err
}

// ByID reads the record with an id. Error: MessageNotFound.
func ByID(x *engine.Rx, id relay.MessageID) (*relay.Message, error) {
	if p, ok := x.IDs.MessagePosition(id); ok {
		if m, err := At(x, p); m != nil || err != nil {
			return m, err
		}
	}
	return nil, ErrNoMessage(id)
}

// Messages is the room that reads messages: one by its id, histories, streams and receipts.
type Messages struct {
	engine.Quiet
	w *engine.Store
}

func New(w *engine.Store) *Messages { return &Messages{w: w} }

func ErrNoMessage(id relay.MessageID) error {
	return relay.Errorf(relay.MessageNotFound, "there is no message %s", relay.Quote(string(id)))
}

// A Right refuses to read a message, by an error. A nil Right refuses nothing.
type Right func(*relay.Message) error

// For is ByID for a reader with a Right.
func For(x *engine.Rx, id relay.MessageID, may Right) (*relay.Message, error) {
	m, err := ByID(x, id)
	if err == nil && may != nil {
		err = may(m)
	}
	return m, err
}

// PayloadFor reads the exact bytes of the message with an id, for a reader with a Right.
// Error: MessageNotFound.
func PayloadFor(x *engine.Rx, id relay.MessageID, may Right) ([]byte, error) {
	m, err := For(x, id, may)
	if err != nil {
		return nil, err
	}
	return payload(x, m.Position)
}

// payload reads the exact bytes of the message at a position, which must exist.
func payload(x *engine.Rx, p relay.Position) ([]byte, error) {
	body, kept, err := KeptPayload(x, p)
	if err == nil && !kept {
		err = errNoPayload(p)
	}
	return body, err
}

// KeptPayload is payload for a message that an earlier transaction read. kept is false if
// the message has been removed since.
func KeptPayload(x *engine.Rx, p relay.Position) (body []byte, kept bool, err error) {
	kept, err = x.C.Row(func(r *sqlite.Rows) { body = r.Blob(0) }, "SELECT body FROM payload WHERE position = ?", int64(p))
	if kept || err != nil {
		return body, kept, err
	}
	there, err := x.C.Row(nil, "SELECT 1 FROM message WHERE position = ?", int64(p))
	if there && err == nil {
		err = errNoPayload(p)
	}
	return nil, false, err
}

func errNoPayload(p relay.Position) error {
	return fmt.Errorf("%w: there is no payload of the message at position %d", sqlite.ErrDamaged, p)
}

// Message reads the record of a message for its sender or recipient, without its
// payload (PROTOCOL §3, Get Message). Errors: NotAParty, MessageNotFound, NotCurrent.
func (m *Messages) Message(ctx context.Context, caller relay.MechaNumber, id relay.MessageID) (*relay.Message, error) {
	if err := m.w.AwaitMessage(ctx, id); err != nil {
		return nil, err
	}
	return engine.Get(ctx, m.w.As(caller).Point, func(x *engine.Rx) (*relay.Message, error) {
		return For(x, id, AsParty(caller))
	})
}

// AsParty returns the Right of a Mecha to the messages that it has sent or received.
func AsParty(caller relay.MechaNumber) Right {
	return func(m *relay.Message) error {
		if caller != m.Sender && caller != m.Recipient {
			return relay.Errorf(relay.NotAParty, "you are neither the sender nor the recipient of this message")
		}
		return nil
	}
}

// Payload reads the exact bytes of a message for its recipient (PROTOCOL §3, Get
// Payload). Errors: RecipientOnly, MessageNotFound, NotCurrent.
func (room *Messages) Payload(ctx context.Context, caller relay.MechaNumber, id relay.MessageID) ([]byte, error) {
	if err := room.w.AwaitMessage(ctx, id); err != nil {
		return nil, err
	}
	asRecipient := func(m *relay.Message) error {
		if caller != m.Recipient {
			return ErrRecipientOnly("read its payload")
		}
		return nil
	}
	return engine.Get(ctx, room.w.As(caller).Point, func(x *engine.Rx) ([]byte, error) {
		return PayloadFor(x, id, asRecipient)
	})
}

func ErrRecipientOnly(what string) error {
	return relay.Errorf(relay.RecipientOnly, "only the recipient of a message may %s", what)
}

// NewestOf returns a query of the positions of the newest messages of a Mecha.
func NewestOf(
	x *engine.Rx, id relay.MechaNumber, of relay.Direction, from relay.Position, limit int,
) (string, []any, error) {
	u, err := mailbox.FindUnindexed(x, id, from, math.MaxInt64, false)
	if err != nil {
		return "", nil, err
	}
	pr := Range{from: from, To: math.MaxInt64, Limit: limit, Unindexed: u}
	positions, args := pr.positions(relay.HistoryQuery{Mecha: id, Direction: of, Descending: true})
	return positions, args, nil
}
