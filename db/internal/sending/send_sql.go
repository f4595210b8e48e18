package sending

import (
	"cmp"
	"context"
	"crypto/sha256"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/messages"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// IdempotencyWindow is how long a stored 201 answers a repeated Idempotency-Key (PROTOCOL §3).
const IdempotencyWindow = 24 * time.Hour

// Send accepts a message that has passed Validate (PROTOCOL §3, Send). It sets the fields
// that this machine decides, DiskFull and later ones. When it returns without an error, the
// message is durable; of a message to a crew, all messages are. Errors: RecipientNotFound,
// with similar addresses; NotAccepted; MessageNotFound and NotAParty, of InReplyTo;
// ConversationNotFound, NotAParticipant, ConversationFull, MailboxFull,
// IdempotencyKeyReused, NonceReused, UnknownKey, KeyRevoked, KeyExpired; for a crew
// BroadcastNotAllowed, TooManyRecipients, PayloadTooLarge; and those of every write:
// RateLimited, if too many writes of the Mecha wait, Overloaded, ShuttingDown,
// DatabaseLocked, DiskFull, Internal, and StoreFailed, after which it is unknown whether
// the message was written. Any goroutine may call it.
func (s *Sending) Send(m *relay.SendMessage) (relay.Sent, error) {
	s.Decide(m)
	sent, err := engine.Do[relay.Sent](s.w, m)
	if err != nil {
		s.tellFounder(m, sent.Full)
		return relay.Sent{}, s.countCrew(s.directory.Suggest(err, m.To, m.Key), m)
	}
	return sent, nil
}

// SendThen is Send without waiting. The messages of one key are committed in the order of the
// calls. done must not block. The writer's goroutine calls it, or SendThen itself if the store
// accepts no more writes; after RecipientNotFound or TooManyRecipients, a goroutine of its own.
func (s *Sending) SendThen(m *relay.SendMessage, done func(relay.Sent, error)) {
	s.Decide(m)
	engine.Then(s.w, m, func(sent relay.Sent, err error) {
		if err == nil {
			done(sent, nil)
			return
		}
		s.tellFounder(m, sent.Full)
		switch relay.ErrorCode(err) {
		case relay.RecipientNotFound, relay.TooManyRecipients:
			// their details must be read, for which the writer must not wait
			go func() { done(relay.Sent{}, s.countCrew(s.directory.Suggest(err, m.To, m.Key), m)) }()
		default:
			done(relay.Sent{}, err)
		}
	})
}

// Decide sets the fields that this machine decides.
func (s *Sending) Decide(m *relay.SendMessage) {
	m.DiskFull, m.MaxPending, m.ConversationLimit = s.w.Disk.Low.Load(), s.limits.MaxPending, s.limits.ConversationLimit
	m.MaxBroadcast, m.MaxBroadcastBytes = s.limits.MaxBroadcast, maxBroadcastBytes
	m.Sought = s.lessons.Sought(m)
}

func (s *Sending) send(t *engine.Tx, m *relay.SendMessage) (relay.Sent, error) {
	sender, err := s.directory.Caller(t, m.Key)
	if err != nil {
		return relay.Sent{}, err
	}
	if sent, known, err := idempotent(&t.Rx, sender.Mecha.Number, m.Idempotency, m.At); known || err != nil {
		return sent, err
	}
	if m.OnlyReplay || t.Store.Log != nil && t.Store.Log.Used(m.Nonce) {
		return relay.Sent{}, engine.ErrNonceReused()
	}
	to, err := s.addressees(t, m, sender)
	if err != nil {
		return relay.Sent{}, err
	}
	answered, err := s.answered(t, m, sender)
	if err != nil {
		return relay.Sent{}, err
	}
	if to, err = s.accepting(t, m, sender, answered, to); err != nil {
		return relay.Sent{}, err
	}
	conversation, err := s.conversation(t, m, sender, answered)
	if err != nil {
		return relay.Sent{}, err
	}
	ahead, err := s.checkRoom(t, m, to)
	if err != nil {
		return relay.Sent{}, err
	}
	limit, err := s.conversationLimit(t, m, conversation, len(to))
	if err != nil {
		if relay.ErrorCode(err) == relay.ConversationFull && limit.told == 0 && limit.isFull(m) {
			return relay.Sent{Full: limit.conversation}, err
		}
		return relay.Sent{}, err
	}
	sent, err := s.write(t, m, sender, to, conversation, answered, limit)
	if !m.To.IsCrew() {
		sent.Ahead = ahead
	}
	return sent, err
}

// write writes a message for each of the recipients. The first one founds the conversation
// if it is new, and the others join it.
func (s *Sending) write(
	t *engine.Tx, m *relay.SendMessage, sender *relay.Key, to []addressee, conversation int64, answered answered,
	limit conversationLimit,
) (sent relay.Sent, err error) {
	o := broadcastFields{nonce: m.Nonce, IdempotencyKey: m.Idempotency}
	if m.To.IsCrew() {
		o.broadcast = len(to)
		s.broadcasts++
	}
	if conversation, err = s.enter(t, m, sender, conversation); err != nil {
		return relay.Sent{}, err
	}
	for i, r := range to {
		p, err := s.insert(t, m, sender, r.number, conversation, answered, o)
		if err != nil {
			return relay.Sent{}, err
		}
		made, err := s.record(t, m, p, sender, r, conversation)
		if err != nil {
			return relay.Sent{}, err
		}
		if i == 0 {
			sent, o = made, broadcastFields{}
			conversation = cmp.Or(conversation, int64(p))
			if err := s.count(t, limit, conversation, p, len(to)); err != nil {
				return relay.Sent{}, err
			}
		}
		if m.To.IsCrew() {
			sent.Recipient, sent.IDs = 0, append(sent.IDs, made.ID)
		}
	}
	return sent, nil
}

// broadcastFields are the fields that only the first row of a broadcast has.
type broadcastFields struct {
	nonce relay.NonceHash
	relay.IdempotencyKey
	broadcast int // to how many Mechas the message goes; 0 if not to a crew
}

// checkRoom refuses a message if, by its fields, the disk or a mailbox has no room. Else
// it returns the number of pending messages of the last recipient.
func (s *Sending) checkRoom(t *engine.Tx, m *relay.SendMessage, to []addressee) (pending int, err error) {
	if m.DiskFull {
		return 0, engine.ErrDiskFull()
	}
	for _, r := range to {
		pending, err = s.mailbox.PendingOf(t, r.number)
		if err != nil {
			return 0, err
		}
		if m.MaxPending > 0 && pending >= m.MaxPending {
			e := relay.Errorf(relay.MailboxFull, "%s has %d messages that it has not acknowledged; the limit is %d",
				r.address, pending, m.MaxPending)
			e.RetryAfter = 30 * time.Second
			return 0, e
		}
	}
	return pending, nil
}

// enter prepares a conversation for a message of a sender, and returns the number of the
// conversation, which is new if its label is unused.
func (s *Sending) enter(t *engine.Tx, m *relay.SendMessage, sender *relay.Key, conversation int64) (int64, error) {
	if conversation < 0 {
		label := m.Conversation
		if label == "" { // the conversation of the message that this one answers
			var err error
			if label, err = messages.ConversationID(&t.Rx, conversation, 0); err != nil {
				return 0, err
			}
		}
		number := s.dictionary.Intern
		if conversation == messages.NewLabel {
			number = s.dictionary.AddWord
		}
		id, err := number(t, string(label))
		if err != nil {
			return 0, err
		}
		conversation = -id
	}
	if err := s.wakeConversation(t, conversation); err != nil {
		return 0, err
	}
	return conversation, s.join(t, conversation, sender.Mecha.Number)
}

// insert writes the rows of a message in a conversation that enter has prepared, and
// returns its position.
func (s *Sending) insert(
	t *engine.Tx, m *relay.SendMessage, sender *relay.Key, recipient relay.MechaNumber, conversation int64,
	answered answered, o broadcastFields,
) (relay.Position, error) {
	var words [3]int64
	for i, text := range [...]string{m.Type, m.Priority, m.Version} {
		id, err := s.dictionary.Intern(t, text)
		if err != nil {
			return 0, err
		}
		words[i] = id
	}
	s.mailbox.AddPending(t, recipient, 1)
	p := t.Position(m.At)
	err := t.C.Exec(`INSERT INTO message (position, recipient, sender, open, state, type, priority, version, conversation,
		correlation_id, expires_at, sender_key, signed, nonce, idempotency_key, body_hash, payload_bytes, payload_sha256,
		in_reply_to, ack_by, traceparent, tracestate, broadcast, sought)
		VALUES (?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		int64(p), int64(recipient), int64(sender.Mecha.Number), words[0], words[1], words[2], sqlite.OrNull(conversation),
		sqlite.OrNull(m.CorrelationID), sqlite.OrNull(relay.MilliOf(m.ExpiresAt)), int64(m.Key), m.Signed, int64(o.nonce),
		sqlite.OrNull(o.Key), sqlite.OrNull(o.Body), int64(len(m.Payload)), m.PayloadSHA256[:],
		sqlite.OrNull(int64(answered.position)), sqlite.OrNull(relay.MilliOf(m.AckBy)), sqlite.OrNull(m.Trace.Parent),
		sqlite.OrNull(m.Trace.State), sqlite.OrNull(int64(o.broadcast)), sqlite.OrNull(relay.JoinWords(m.Sought)))
	if err != nil {
		return 0, err
	}
	if err := t.C.Exec("INSERT INTO payload (position, body) VALUES (?, ?)", int64(p), m.Payload); err != nil {
		return 0, err
	}
	if err := s.join(t, conversation, recipient); err != nil {
		return 0, err
	}
	return p, s.mailbox.Index(t, names.Message{At: p, Recipient: recipient, Sender: sender.Mecha.Number,
		Conversation: conversation, Question: answered.position})
}

// record makes the message for the listeners, and the answer for the sender.
func (s *Sending) record(
	t *engine.Tx, m *relay.SendMessage, p relay.Position, sender *relay.Key, to addressee, conversation int64,
) (relay.Sent, error) {
	id, err := messages.ConversationID(&t.Rx, conversation, p)
	if err != nil {
		return relay.Sent{}, err
	}
	made := &relay.Message{
		Position: p, ID: t.IDs.Message(p), Conversation: id, Version: m.Version,
		Sender: sender.Mecha.Number, Recipient: to.number, From: sender.Mecha.Address, To: to.address,
		Type: m.Type, Priority: m.Priority, CorrelationID: m.CorrelationID, State: relay.Queued,
		CreatedAt: p.Time(), ExpiresAt: relay.UnixMilli(relay.MilliOf(m.ExpiresAt)),
		PayloadBytes: len(m.Payload), PayloadSHA256: m.PayloadSHA256, Signed: m.Signed, Payload: m.Payload,
		InReplyTo: m.InReplyTo, AckBy: relay.UnixMilli(relay.MilliOf(m.AckBy)), Trace: m.Trace,
	}
	s.progress.Expect(relay.MilliOf(m.ExpiresAt), relay.MilliOf(m.AckBy))
	t.Brought.Messages = append(t.Brought.Messages, made)
	return relay.Sent{ID: made.ID, Conversation: made.Conversation, CreatedAt: made.CreatedAt, Recipient: to.number}, nil
}

// conversation returns the number of the conversation that the sender named, or of the
// conversation of the answered message, or 0 for a new one. Errors: ConversationNotFound,
// NotAParticipant, InvalidRequest.
func (s *Sending) conversation(t *engine.Tx, m *relay.SendMessage, sender *relay.Key, a answered) (int64, error) {
	if a.position != 0 && m.Conversation == "" {
		return a.conversation, nil
	}
	number, err := s.namedConversation(t, m, sender)
	if err == nil && a.position != 0 && number != a.conversation {
		return 0, relay.FieldErrorf(relay.InvalidRequest, "conversation_id",
			"must be that of the message in in_reply_to, or be left out")
	}
	return number, err
}

// answered is the message that another one answers, or the zero value.
type answered struct {
	position     relay.Position
	sender       relay.MechaNumber
	conversation int64
}

// answered finds the message in InReplyTo. Errors: MessageNotFound, NotAParty.
func (s *Sending) answered(t *engine.Tx, m *relay.SendMessage, sender *relay.Key) (a answered, err error) {
	if m.InReplyTo == "" {
		return a, nil
	}
	p, ok := t.IDs.MessagePosition(m.InReplyTo)
	party := false
	if ok {
		ok, err = t.C.Row(func(r *sqlite.Rows) {
			party = r.Int(0) == int64(sender.Mecha.Number) || r.Int(1) == int64(sender.Mecha.Number)
			a = answered{p, relay.MechaNumber(r.Int(0)), r.Int(2)}
		}, "SELECT sender, recipient, coalesce(conversation, position) FROM message WHERE position = ?", int64(p))
	}
	switch {
	case err != nil:
		return answered{}, err
	case !ok:
		return answered{}, messages.ErrNoMessage(m.InReplyTo)
	case !party:
		return answered{}, relay.Errorf(relay.NotAParty,
			"you are neither the sender nor the recipient of the message in in_reply_to")
	}
	return a, nil
}

// namedConversation returns the number of the conversation that the sender named, or 0.
func (s *Sending) namedConversation(t *engine.Tx, m *relay.SendMessage, sender *relay.Key) (int64, error) {
	if !m.Conversation.Issued() && s.dictionary.IsRemoved(t, string(m.Conversation)) {
		return messages.NewLabel, nil
	}
	number, err := messages.ConversationNumber(&t.Rx, m.Conversation)
	if err != nil || number <= 0 {
		return number, err
	}
	if s.members.has(number, sender.Mecha.Number) {
		return number, nil
	}
	in, err := messages.Participates(&t.Rx, number, sender.Mecha.Number)
	if err == nil && !in {
		err = relay.Errorf(relay.NotAParticipant, "%s has neither sent nor received a message in %s",
			sender.Mecha.Address, m.Conversation)
	}
	return number, err
}

// IdempotencyKey makes the keyed hashes of a sender's Idempotency-Key and of the body
// that came with it.
func (s *Sending) IdempotencyKey(sender relay.MechaNumber, key string, body []byte) relay.IdempotencyKey {
	sum := sha256.Sum256(body)
	return relay.IdempotencyKey{
		Key:  s.w.IDs.Hash('i', int64(sender), []byte(key)) | 1, // never 0, which means none
		Body: s.w.IDs.Hash('b', int64(sender), sum[:]) | 1,
	}
}

// idempotent finds the answer to a sender's Idempotency-Key in the 24 hours before now,
// and reports whether it is known. Error: IdempotencyKeyReused, if the key was used with
// another body.
func idempotent(
	x *engine.Rx, sender relay.MechaNumber, key relay.IdempotencyKey, now time.Time,
) (sent relay.Sent, known bool, err error) {
	if key == (relay.IdempotencyKey{}) {
		return relay.Sent{}, false, nil
	}
	var p relay.Position
	var body, from, broadcast int64
	found, err := x.C.Row(func(r *sqlite.Rows) {
		p, body, from, broadcast = relay.Position(r.Int(0)), r.Int(1), r.Int(2), r.Int(3)
	},
		`SELECT position, body_hash, sender, coalesce(broadcast, 0) FROM message INDEXED BY message_idempotency
		WHERE idempotency_key = ? ORDER BY position DESC LIMIT 1`, key.Key)
	if err != nil || !found || relay.MechaNumber(from) != sender {
		return relay.Sent{}, false, err
	}
	if at, err := engine.Accepted(x, p); err != nil || now.Sub(at) > IdempotencyWindow {
		return relay.Sent{}, false, err
	}
	if body != key.Body {
		return relay.Sent{}, false, relay.Errorf(relay.IdempotencyKeyReused,
			"this Idempotency-Key came with another body before")
	}
	m, err := messages.At(x, p)
	if err != nil || m == nil {
		return relay.Sent{}, false, err
	}
	sent = relay.Sent{ID: m.ID, Conversation: m.Conversation, CreatedAt: m.CreatedAt, Replayed: true}
	if broadcast > 0 {
		for i := range broadcast { // some of the rows may have been removed meanwhile
			sent.IDs = append(sent.IDs, x.IDs.Message(p+relay.Position(i)))
		}
		return sent, true, nil
	}
	sent.Recipient = m.Recipient
	sent.Ahead, err = mailbox.CountAhead(x, m.Recipient, p)
	return sent, err == nil, err
}

// Idempotent finds the stored answer to an Idempotency-Key at the time now, and reports
// whether it is known (PROTOCOL §3, Idempotency-Key). Call it before checking anything
// else of the request. Error: IdempotencyKeyReused, if the key was used with another
// body.
func (s *Sending) Idempotent(
	ctx context.Context, sender relay.MechaNumber, key relay.IdempotencyKey, now time.Time,
) (sent relay.Sent, known bool, err error) {
	err = s.w.As(sender).Point(ctx, func(x *engine.Rx) error {
		sent, known, err = idempotent(x, sender, key, now)
		return err
	})
	return sent, known, err
}
