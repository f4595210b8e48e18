package db

import (
	"crypto/sha256"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// idempotencyWindow is how long a stored 201 answers a repeated Idempotency-Key (PROTOCOL §3).
const idempotencyWindow = 24 * time.Hour

// Send accepts a message that has passed Validate (PROTOCOL §3, Send). It sets
// m.DiskFull and m.MaxPending, the verdicts of this machine. When it returns without an
// error, the message is durable. Errors: RecipientNotFound, with similar addresses;
// ConversationNotFound, NotAParticipant, MailboxFull, IdempotencyKeyReused,
// NonceReused, UnknownKey, KeyRevoked, KeyExpired; and those of every write: RateLimited,
// if too many writes of the Mecha wait, Overloaded, ShuttingDown, DatabaseLocked, DiskFull,
// Internal, and StoreFailed, after which it is unknown whether the message was written.
// Safe for concurrent use.
func (d *DB) Send(m *relay.SendMessage) (relay.Sent, error) {
	d.judge(m)
	sent, err := do(d, m, (*tx).send)
	if err != nil {
		return relay.Sent{}, d.suggest(err, m.To, m.Key)
	}
	return sent, nil
}

// SendThen is Send without waiting. The messages of one key are committed in the order of
// the calls. done must not block: it is called from the writer's goroutine, or at once if
// the store takes no more writes; after RecipientNotFound, from a goroutine of its own.
func (d *DB) SendThen(m *relay.SendMessage, done func(relay.Sent, error)) {
	d.judge(m)
	then(d, m, (*tx).send, func(sent relay.Sent, err error) {
		if relay.ErrorCode(err) == relay.RecipientNotFound { // suggest reads, and the writer must not wait for that
			go func() { done(relay.Sent{}, d.suggest(err, m.To, m.Key)) }()
			return
		}
		done(sent, err)
	})
}

// judge sets the verdicts of this machine.
func (d *DB) judge(m *relay.SendMessage) {
	m.DiskFull, m.MaxPending = d.disk.low.Load(), d.opts.MaxPending
}

func (t *tx) send(m *relay.SendMessage) (relay.Sent, error) {
	sender, err := t.caller(m.Key)
	if err != nil {
		return relay.Sent{}, err
	}
	if sent, known, err := t.idempotent(sender.Mecha.Number, m.Idempotency, m.At); known || err != nil {
		return sent, err
	}
	if m.OnlyReplay {
		return relay.Sent{}, relay.Errorf(relay.NonceReused, "this nonce was used before with this key; every request needs a fresh one")
	}
	recipient, err := t.recipient(m.To)
	if err != nil {
		return relay.Sent{}, err
	}
	conversation, err := t.conversation(m, sender)
	if err != nil {
		return relay.Sent{}, err
	}
	if err := t.checkRoom(m, recipient); err != nil {
		return relay.Sent{}, err
	}
	p, err := t.insert(m, sender, recipient, conversation)
	if err != nil {
		return relay.Sent{}, err
	}
	return t.record(m, p, sender, recipient, conversation), nil
}

// checkRoom refuses a message if, by its verdicts, the disk or the mailbox has no room.
func (t *tx) checkRoom(m *relay.SendMessage, recipient relay.MechaNumber) error {
	if m.DiskFull {
		return errDiskFull()
	}
	if m.MaxPending <= 0 {
		return nil
	}
	n, err := t.countPending(recipient)
	if err == nil && n >= m.MaxPending {
		e := relay.Errorf(relay.MailboxFull, "%s has %d messages that it has not acknowledged; the limit is %d", m.To, n, m.MaxPending)
		e.RetryAfter = 30 * time.Second
		return e
	}
	return err
}

// insert writes the rows of a message and returns its position.
func (t *tx) insert(m *relay.SendMessage, sender *relay.Key, recipient relay.MechaNumber, conversation int64) (relay.Position, error) {
	var words [3]int64
	for i, text := range [...]string{m.Type, m.Priority, m.Version} {
		id, err := t.intern(text)
		if err != nil {
			return 0, err
		}
		words[i] = id
	}
	if conversation < 0 {
		id, err := t.intern(string(m.Conversation))
		if err != nil {
			return 0, err
		}
		conversation = -id
	}
	if err := t.wakeConversation(conversation); err != nil {
		return 0, err
	}
	t.addPending(recipient, 1)
	p := t.position(m.At)
	err := t.c.Exec(`INSERT INTO message (position, recipient, sender, open, state, type, priority, version, conversation,
		correlation_id, expires_at, sender_key, signed, nonce, idempotency_key, body_hash, payload_bytes, payload_sha256)
		VALUES (?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		int64(p), int64(recipient), int64(sender.Mecha.Number), words[0], words[1], words[2], sqlite.OrNull(conversation),
		sqlite.OrNull(m.CorrelationID), sqlite.OrNull(relay.MilliOf(m.ExpiresAt)), int64(m.Key), boolInt(m.Signed), int64(m.Nonce),
		sqlite.OrNull(m.Idempotency.Key), sqlite.OrNull(m.Idempotency.Body), int64(len(m.Payload)), m.PayloadSHA256[:])
	if err != nil {
		return 0, err
	}
	if err := t.c.Exec("INSERT INTO payload (position, body) VALUES (?, ?)", int64(p), m.Payload); err != nil {
		return 0, err
	}
	if err := t.join(conversation, recipient, sender.Mecha.Number); err != nil {
		return 0, err
	}
	return p, t.indexNow(p, recipient, sender.Mecha.Number)
}

// record makes the message for the listeners, and the answer for the sender.
func (t *tx) record(m *relay.SendMessage, p relay.Position, sender *relay.Key, recipient relay.MechaNumber, conversation int64) relay.Sent {
	made := &relay.Message{
		Position: p, ID: t.ids.Message(p), Conversation: m.Conversation, Version: m.Version,
		Sender: sender.Mecha.Number, Recipient: recipient, From: sender.Mecha.Address, To: m.To,
		Type: m.Type, Priority: m.Priority, CorrelationID: m.CorrelationID, State: relay.Queued,
		CreatedAt: p.Time(), ExpiresAt: relay.UnixMilli(relay.MilliOf(m.ExpiresAt)),
		PayloadBytes: len(m.Payload), PayloadSHA256: m.PayloadSHA256, Signed: m.Signed, Payload: m.Payload,
	}
	if conversation == 0 {
		made.Conversation = t.ids.Conversation(p)
	}
	t.w.expiry.expect(relay.MilliOf(m.ExpiresAt))
	t.brought.Messages = append(t.brought.Messages, made)
	return relay.Sent{ID: made.ID, Conversation: made.Conversation, CreatedAt: made.CreatedAt}
}

// newLabel is the number of a client's label that nobody has used yet.
const newLabel = -1 << 62

// conversation gives the number of the conversation that the sender named; 0 for a new
// one. Errors: ConversationNotFound, NotAParticipant.
func (t *tx) conversation(m *relay.SendMessage, sender *relay.Key) (int64, error) {
	if !m.Conversation.Issued() && t.isRemoved(string(m.Conversation)) {
		return newLabel, nil
	}
	number, err := t.conversationNumber(m.Conversation)
	if err != nil || number <= 0 {
		return number, err
	}
	in, err := t.participates(number, sender.Mecha.Number)
	if err == nil && !in {
		err = relay.Errorf(relay.NotAParticipant, "%s has neither sent nor received a message in %s", sender.Mecha.Address, m.Conversation)
	}
	return number, err
}

// conversationNumber gives the value of message.conversation for an id: 0 for "", the
// position of the founding message for an issued id, minus the number of the word for a
// label, newLabel for a label that nobody has used. Error: ConversationNotFound.
func (x *rx) conversationNumber(id relay.ConversationID) (int64, error) {
	if id == "" {
		return 0, nil
	}
	if !id.Issued() {
		word, err := x.words.find(x.c, string(id))
		if err != nil || word != 0 {
			return -word, err
		}
		return newLabel, nil
	}
	p, ok := x.ids.ConversationPosition(id)
	if ok {
		known, err := x.c.Row(nil, "SELECT 1 FROM message WHERE position = ?", int64(p))
		for _, other := range [...]string{"SELECT 1 FROM message WHERE conversation = ? LIMIT 1", "SELECT 1 FROM dormant WHERE conversation = ?"} {
			if !known && err == nil {
				known, err = x.c.Row(nil, other, int64(p))
			}
		}
		if err != nil || known {
			return int64(p), err
		}
	}
	return 0, relay.Errorf(relay.ConversationNotFound, "%s is not a conversation of this relay; leave the field out to start one", relay.Quote(string(id)))
}

// participates tells whether a Mecha has sent or received in a conversation.
func (x *rx) participates(conversation int64, id relay.MechaNumber) (bool, error) {
	if conversation > 0 {
		in := false
		party := func(r *sqlite.Rows) { in = r.Int(0) == int64(id) || r.Int(1) == int64(id) }
		founded, err := x.c.Row(party, "SELECT sender, recipient FROM message WHERE position = ? AND conversation IS NULL", conversation)
		if !founded && err == nil {
			_, err = x.c.Row(party, "SELECT sender, recipient FROM dormant WHERE conversation = ?", conversation)
		}
		if in || err != nil {
			return in, err
		}
	}
	return x.c.Row(nil, "SELECT 1 FROM participant WHERE conversation = ? AND mecha = ?", conversation, int64(id))
}

// join adds the parties of a message to the participants of its conversation. The
// founding message of a conversation needs no such rows.
func (t *tx) join(conversation int64, parties ...relay.MechaNumber) error {
	if conversation == 0 {
		return nil
	}
	for _, id := range parties {
		in, err := t.participates(conversation, id)
		if err != nil {
			return err
		}
		if in {
			continue
		}
		if err := t.c.Exec("INSERT INTO participant (conversation, mecha) VALUES (?, ?)", conversation, int64(id)); err != nil {
			return err
		}
	}
	return nil
}

// IdempotencyKey makes the keyed hashes of a sender's Idempotency-Key and of the body
// that came with it.
func (d *DB) IdempotencyKey(sender relay.MechaNumber, key string, body []byte) relay.IdempotencyKey {
	sum := sha256.Sum256(body)
	return relay.IdempotencyKey{
		Key:  d.ids.Hash('i', int64(sender), []byte(key)) | 1, // never 0, which means none
		Body: d.ids.Hash('b', int64(sender), sum[:]) | 1,
	}
}

// idempotent finds the answer to a sender's Idempotency-Key in the 24 hours before now;
// known is false if there is none. Error: IdempotencyKeyReused, if the key came with
// another body.
func (x *rx) idempotent(sender relay.MechaNumber, key relay.IdempotencyKey, now time.Time) (sent relay.Sent, known bool, err error) {
	if key == (relay.IdempotencyKey{}) {
		return relay.Sent{}, false, nil
	}
	var p relay.Position
	var body, from int64
	found, err := x.c.Row(func(r *sqlite.Rows) { p, body, from = relay.Position(r.Int(0)), r.Int(1), r.Int(2) },
		`SELECT position, body_hash, sender FROM message INDEXED BY message_idempotency
		WHERE idempotency_key = ? ORDER BY position DESC LIMIT 1`, key.Key)
	if err != nil || !found || relay.MechaNumber(from) != sender {
		return relay.Sent{}, false, err
	}
	if at, err := x.accepted(p); err != nil || now.Sub(at) > idempotencyWindow {
		return relay.Sent{}, false, err
	}
	if body != key.Body {
		return relay.Sent{}, false, relay.Errorf(relay.IdempotencyKeyReused, "this Idempotency-Key came with another body before")
	}
	m, err := x.message(p)
	if err != nil || m == nil {
		return relay.Sent{}, false, err
	}
	return relay.Sent{ID: m.ID, Conversation: m.Conversation, CreatedAt: m.CreatedAt, Replayed: true}, true, nil
}
