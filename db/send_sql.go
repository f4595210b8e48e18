package db

import (
	"crypto/sha256"
	"time"
)

// idempotencyWindow is how long a stored 201 answers a repeated Idempotency-Key (PROTOCOL §3).
const idempotencyWindow = 24 * time.Hour

// Sent is what a sender is told: PROTOCOL §3, Send.
type Sent struct {
	ID           MessageID
	Conversation ConversationID
	CreatedAt    time.Time
	Replayed     bool // this is the stored answer of an earlier request
}

// Send accepts a message that has passed Validate. When it returns without an
// error the message is durable. A *Error says why not: RecipientNotFound,
// ConversationNotFound, NotAParticipant, MailboxFull, IdempotencyKeyReused,
// NonceReused, DiskFull, and with an unknown outcome StoreFailed.
func (d *DB) Send(m *SendMessage) (Sent, error) {
	m.payloadSHA256 = sha256.Sum256(m.Payload)
	if err := d.do(m); err != nil {
		return Sent{}, d.suggest(err, m.To, m.Key.Mecha.Address)
	}
	return Sent{ID: m.sent.ID, Conversation: m.sent.Conversation, CreatedAt: m.sent.CreatedAt, Replayed: m.replayed}, nil
}

func (m *SendMessage) size() int { return len(m.Payload) + 512 }

func (m *SendMessage) apply(t *tx) error {
	m.sent, m.replayed = nil, false
	if err := m.replay(t); err != nil || m.replayed {
		return err
	}
	if m.OnlyReplay {
		return Errorf(NonceReused, "this nonce was used before with this key; every request needs a fresh one")
	}
	recipient, err := t.recipient(m.To)
	if err != nil {
		return err
	}
	conversation, err := m.conversation(t)
	if err != nil {
		return err
	}
	if err := m.checkRoom(t, recipient); err != nil {
		return err
	}
	return m.insert(t, recipient, conversation)
}

// replay finds the message that the same Idempotency-Key made before.
func (m *SendMessage) replay(t *tx) error {
	if m.Idempotency == (IdempotencyKey{}) {
		return nil
	}
	sent, err := t.idempotent(m.Key.Mecha.ID, m.Idempotency, m.At)
	if sent != nil {
		m.sent, m.replayed = sent, true
	}
	return err
}

func (m *SendMessage) checkRoom(t *tx, recipient MechaID) error {
	if t.d.diskLow.Load() {
		return t.d.errDiskFull()
	}
	limit := t.d.opts.MaxPending
	if limit <= 0 {
		return nil
	}
	n, err := t.countPending(recipient)
	if err == nil && n >= limit {
		e := Errorf(MailboxFull, "%s has %d messages that it has not acknowledged; the limit is %d", m.To, n, limit)
		e.RetryAfter = 30 * time.Second
		return e
	}
	return err
}

func (m *SendMessage) insert(t *tx, recipient MechaID, conversation int64) error {
	var words [3]int64
	for i, text := range [...]string{m.Type, m.Priority, m.Version} {
		id, err := t.intern(text)
		if err != nil {
			return err
		}
		words[i] = id
	}
	if conversation == newLabel {
		id, err := t.intern(string(m.Conversation))
		if err != nil {
			return err
		}
		conversation = -id
	}
	if err := t.addPending(recipient, 1); err != nil {
		return err
	}
	p := t.position(m.At)
	err := t.c.exec(`INSERT INTO message (position, recipient, sender, open, state, type, priority, version, conversation,
		correlation_id, expires_at, sender_key, signed, nonce, idempotency_key, body_hash, payload_bytes, payload_sha256)
		VALUES (?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		int64(p), int64(recipient), int64(m.Key.Mecha.ID), words[0], words[1], words[2], orNull(conversation),
		orNull(m.CorrelationID), orNull(msOf(m.ExpiresAt)), m.Key.Number, boolInt(m.Signed), int64(m.Nonce),
		orNull(m.Idempotency.Key), orNull(m.Idempotency.Body), int64(len(m.Payload)), m.payloadSHA256[:])
	if err != nil {
		return err
	}
	if err := t.c.exec("INSERT INTO payload (position, body) VALUES (?, ?)", int64(p), m.Payload); err != nil {
		return err
	}
	if err := t.join(conversation, recipient, m.Key.Mecha.ID); err != nil {
		return err
	}
	if err := t.fileAtOnce(p, recipient, m.Key.Mecha.ID); err != nil {
		return err
	}
	m.record(t, p, recipient, conversation)
	return nil
}

// record makes the message as the listeners will see it.
func (m *SendMessage) record(t *tx, p Position, recipient MechaID, conversation int64) {
	m.sent = &Message{
		Position: p, ID: t.d.ids.message(p), Conversation: m.Conversation, Version: m.Version,
		Sender: m.Key.Mecha.ID, Recipient: recipient, From: m.Key.Mecha.Address, To: m.To,
		Type: m.Type, Priority: m.Priority, CorrelationID: m.CorrelationID, State: Queued,
		CreatedAt: p.Time(), ExpiresAt: truncated(m.ExpiresAt),
		PayloadBytes: len(m.Payload), PayloadSHA256: m.payloadSHA256, Signed: m.Signed, Payload: m.Payload,
	}
	if conversation == 0 {
		m.sent.Conversation = t.d.ids.conversation(p)
	}
	if ms := msOf(m.ExpiresAt); ms != 0 && (t.nextExpiry == 0 || ms < t.nextExpiry) {
		t.nextExpiry = ms
	}
	t.commit.Messages = append(t.commit.Messages, m.sent)
}

// newLabel stands for a client's label that has no number yet.
const newLabel = -1 << 62

// conversation resolves the conversation that the sender named: 0 for a new one.
func (m *SendMessage) conversation(t *tx) (int64, error) {
	number, err := t.conversationNumber(m.Conversation)
	if err != nil || number <= 0 {
		return number, err
	}
	in, err := t.participates(number, m.Key.Mecha.ID)
	if err == nil && !in {
		err = Errorf(NotAParticipant, "%s has neither sent nor received a message in %s", m.Key.Mecha.Address, m.Conversation)
	}
	return number, err
}

// conversationNumber gives what stands in message.conversation: 0 for "", the
// founding position for an issued id (ConversationNotFound if it never was),
// minus the word for a label, newLabel if nobody used it yet.
func (x *rx) conversationNumber(id ConversationID) (int64, error) {
	if id == "" {
		return 0, nil
	}
	if !hasPrefix(id, conversationPrefix) {
		word, err := x.d.words.find(x.c, string(id))
		if err != nil || word != 0 {
			return -word, err
		}
		return newLabel, nil
	}
	p, ok := x.d.ids.conversationPosition(id)
	if ok {
		known, err := x.c.row(nil, "SELECT 1 FROM message WHERE position = ?", int64(p))
		if !known && err == nil {
			known, err = x.c.row(nil, "SELECT 1 FROM message WHERE conversation = ? LIMIT 1", int64(p))
		}
		if err != nil || known {
			return int64(p), err
		}
	}
	return 0, Errorf(ConversationNotFound, "%s is no conversation of this relay; leave the field out to start one", quote(string(id)))
}

// participates tells whether a Mecha has sent or received in a conversation.
func (x *rx) participates(conversation int64, id MechaID) (bool, error) {
	if conversation > 0 {
		in := false
		_, err := x.c.row(func(r *rows) { in = r.int(0) == int64(id) || r.int(1) == int64(id) },
			"SELECT sender, recipient FROM message WHERE position = ? AND conversation IS NULL", conversation)
		if in || err != nil {
			return in, err
		}
	}
	return x.c.row(nil, "SELECT 1 FROM participant WHERE conversation = ? AND mecha = ?", conversation, int64(id))
}

// join writes down who takes part in a conversation that has more than its founding message.
func (t *tx) join(conversation int64, parties ...MechaID) error {
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
		if err := t.c.exec("INSERT INTO participant (conversation, mecha) VALUES (?, ?)", conversation, int64(id)); err != nil {
			return err
		}
	}
	return nil
}

// IdempotencyKey hashes an Idempotency-Key of a sender and the body that came with it.
func (d *DB) IdempotencyKey(sender MechaID, key string, body []byte) IdempotencyKey {
	sum := sha256.Sum256(body)
	return IdempotencyKey{
		Key:  d.ids.hash64('i', int64(sender), []byte(key)) | 1, // never 0, which means none
		Body: d.ids.hash64('b', int64(sender), sum[:]) | 1,
	}
}

// idempotent finds the message that a sender's Idempotency-Key made in the
// last 24 hours: nil if none; IdempotencyKeyReused if it came with another body.
func (x *rx) idempotent(sender MechaID, key IdempotencyKey, now time.Time) (*Message, error) {
	var p Position
	var body, from int64
	found, err := x.c.row(func(r *rows) { p, body, from = Position(r.int(0)), r.int(1), r.int(2) },
		`SELECT position, body_hash, sender FROM message INDEXED BY message_idempotency
		WHERE idempotency_key = ? ORDER BY position DESC LIMIT 1`, key.Key)
	if err != nil || !found || MechaID(from) != sender || now.Sub(p.Time()) > idempotencyWindow {
		return nil, err
	}
	if body != key.Body {
		return nil, Errorf(IdempotencyKeyReused, "this Idempotency-Key came with another body before")
	}
	return x.message(p)
}
