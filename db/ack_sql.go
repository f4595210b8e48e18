package db

import "time"

// Acknowledge applies an acknowledgement that has passed Validate, and returns
// once it is durable. A *Error says why not: MessageNotFound, RecipientOnly,
// MessageExpired, AlreadyAcknowledged.
func (d *DB) Acknowledge(a *Acknowledge) (AckOutcome, error) {
	err := d.do(a)
	return a.outcome, err
}

// AcknowledgeThen is Acknowledge without waiting: then is called from the
// writer's goroutine, in the order of the calls, and must not block.
func (d *DB) AcknowledgeThen(a *Acknowledge, then func(AckOutcome, error)) {
	d.submit(a, func(err error) { then(a.outcome, err) })
}

func (a *Acknowledge) size() int { return 256 + len(a.Detail) }

func (a *Acknowledge) apply(t *tx) error {
	m, err := t.forRecipient(a.ID, a.Key, "acknowledge it")
	if err != nil {
		return err
	}
	if m.State == Expired {
		t.commit.Changes = append(t.commit.Changes, changed(m, m.ExpiresAt, true, false))
		return errExpired(m)
	}
	if m.Ack != nil && isFinal(m.Ack.Status) {
		return a.again(t, m)
	}
	state, first := Acknowledged, m.State != Acknowledged
	if reportsProgress(a.Status) {
		state, first = max(m.State, Delivered), false
	}
	status, err := t.intern(a.Status)
	if err != nil {
		return err
	}
	p := t.position(a.At)
	err = t.addReceipt(m, receipt{at: p, state: state, status: status, clientTS: a.ClientTS, detail: a.Detail, key: a.Key, nonce: a.Nonce})
	if err != nil {
		return err
	}
	if m.DeliveredAt.IsZero() {
		m.DeliveredAt = p.Time()
	}
	if first {
		m.AcknowledgedAt = p.Time()
	}
	if err := t.setState(m, state, p, true); err != nil {
		return err
	}
	m.Ack = &Ack{Status: a.Status, ClientTS: a.ClientTS, At: p.Time(), Detail: a.Detail}
	t.commit.Changes = append(t.commit.Changes, changed(m, p.Time(), true, true))
	a.outcome = AckOutcome{ID: m.ID, State: state, Status: a.Status, ClientTS: a.ClientTS, AcknowledgedAt: m.AcknowledgedAt}
	return nil
}

// again answers an acknowledgement that follows a final one. Either way the
// recipient has answered for the message, so it is in flight no longer.
func (a *Acknowledge) again(t *tx, m *Message) error {
	t.commit.Changes = append(t.commit.Changes, changed(m, m.Ack.At, true, false))
	if m.Ack.Status != a.Status {
		return Errorf(AlreadyAcknowledged, "the message was acknowledged as %s at %s", m.Ack.Status, FormatTime(m.Ack.At))
	}
	a.outcome = AckOutcome{ID: m.ID, State: m.State, Status: m.Ack.Status, ClientTS: m.Ack.ClientTS,
		AcknowledgedAt: m.AcknowledgedAt, Duplicate: true}
	return nil
}

// MarkDelivered records that a message has arrived, and returns once that is
// durable. It never moves a state back. Errors: MessageNotFound, RecipientOnly, MessageExpired.
func (d *DB) MarkDelivered(m *MarkDelivered) (DeliveredOutcome, error) {
	err := d.do(m)
	return m.outcome, err
}

func (d *MarkDelivered) size() int { return 128 }

func (d *MarkDelivered) apply(t *tx) error {
	m, err := t.forRecipient(d.ID, d.Key, "mark it as delivered")
	if err != nil {
		return err
	}
	if m.State == Expired {
		return errExpired(m)
	}
	if m.State == Queued {
		p := t.position(d.At)
		if err := t.addReceipt(m, receipt{at: p, state: Delivered, key: d.Key, nonce: d.Nonce}); err != nil {
			return err
		}
		m.DeliveredAt = p.Time()
		if err := t.setState(m, Delivered, p, false); err != nil {
			return err
		}
		t.commit.Changes = append(t.commit.Changes, changed(m, p.Time(), false, true))
	}
	d.outcome = DeliveredOutcome{ID: m.ID, State: m.State, DeliveredAt: m.DeliveredAt}
	return nil
}

// expireDue is the write that ends the life of messages whose time is over.
type expireDue struct{ At time.Time }

const expireAtOnce = 500 // messages in one transaction: neighbours wait for it

func (e *expireDue) size() int { return 0 }

func (e *expireDue) apply(t *tx) error {
	due, next, err := t.dueMessages(e.At)
	if err != nil {
		return err
	}
	for _, m := range due {
		m.State = Queued // as stored; read back, it already counts as expired
		p := t.position(e.At)
		if err := t.addReceipt(m, receipt{at: p, state: Expired}); err != nil {
			return err
		}
		if err := t.setState(m, Expired, p, false); err != nil {
			return err
		}
		t.commit.Changes = append(t.commit.Changes, changed(m, m.ExpiresAt, true, true))
	}
	t.nextExpiry = next
	return nil
}

// dueMessages reads some of the messages that are due at a time, and when the next one will be (0: none).
func (t *tx) dueMessages(at time.Time) (due []*Message, next int64, err error) {
	r := t.c.query(`SELECT position, expires_at FROM message INDEXED BY message_expiry
		WHERE open = 1 AND expires_at IS NOT NULL ORDER BY expires_at LIMIT ?`, int64(expireAtOnce+1))
	var positions []Position
	for r.next() {
		next = r.int(1)
		if next > at.UnixMilli() || len(positions) == expireAtOnce {
			break
		}
		positions, next = append(positions, Position(r.int(0))), 0
	}
	if err := r.close(); err != nil {
		return nil, 0, err
	}
	for _, p := range positions {
		m, err := t.message(p)
		if err != nil {
			return nil, 0, err
		}
		due = append(due, m)
	}
	return due, next, nil
}

// forRecipient reads a message for its recipient's key: else MessageNotFound, RecipientOnly.
func (t *tx) forRecipient(id MessageID, key *Key, what string) (*Message, error) {
	m, err := t.messageByID(id)
	if err == nil && m.Recipient != key.Mecha.ID {
		return nil, errRecipientOnly(what)
	}
	return m, err
}

// receipt is a row of the table of that name.
type receipt struct {
	at       Position
	state    State
	status   int64 // a word; 0: no acknowledgement
	clientTS string
	detail   string
	key      *Key // nil: the clock
	nonce    NonceHash
}

func (t *tx) addReceipt(m *Message, r receipt) error {
	var previous any
	if _, err := t.c.row(func(r *rows) { previous = r.dest[0] }, "SELECT receipt FROM message WHERE position = ?", int64(m.Position)); err != nil {
		return err
	}
	var key int64
	if r.key != nil {
		key = r.key.Number
	}
	return t.c.exec(`INSERT INTO receipt (position, message, previous, state, status, client_ts, detail, key, nonce)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, int64(r.at), int64(m.Position), previous, int64(r.state), orNull(r.status),
		orNull(r.clientTS), orNull(r.detail), orNull(key), orNull(int64(r.nonce)))
}

// setState moves a message to a state, with receipt p as its latest, and keeps the count of what is pending.
func (t *tx) setState(m *Message, state State, p Position, isAck bool) error {
	if m.State.pending() && !state.pending() {
		if err := t.addPending(m.Recipient, -1); err != nil {
			return err
		}
		if err := t.fileAsDone(m); err != nil {
			return err
		}
	}
	m.State = state
	ack := any(nil)
	if isAck {
		ack = int64(p)
	}
	return t.c.exec(`UPDATE message SET state = ?, open = ?, delivered_at = ?, acknowledged_at = ?,
		receipt = ?, ack = coalesce(?, ack) WHERE position = ?`,
		int64(state), boolInt(state.pending()), orNull(msOf(m.DeliveredAt)), orNull(msOf(m.AcknowledgedAt)),
		int64(p), ack, int64(m.Position))
}

func changed(m *Message, at time.Time, freed, isNew bool) Change {
	c := Change{Position: m.Position, ID: m.ID, Sender: m.Sender, Recipient: m.Recipient, State: m.State, At: at, Freed: freed, New: isNew}
	if m.Ack != nil && m.State != Expired {
		c.Status, c.Detail = m.Ack.Status, m.Ack.Detail
	}
	return c
}

func errExpired(m *Message) error {
	return Errorf(MessageExpired, "the message expired at %s", FormatTime(m.ExpiresAt))
}
