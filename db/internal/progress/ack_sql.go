package progress

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Acknowledge applies an acknowledgement that has passed Validate, and returns once it is
// durable (PROTOCOL §3, Ack). Errors: MessageNotFound, RecipientOnly, MessageExpired,
// AlreadyAcknowledged, TooManyAcks, UnknownKey, KeyRevoked, KeyExpired; and those of every
// write: RateLimited, Overloaded, ShuttingDown, DatabaseLocked, DiskFull, StoreFailed,
// Internal. Any goroutine may call it.
func (p *Progress) Acknowledge(a *relay.Acknowledge) (relay.AckOutcome, error) {
	p.decideAck(a)
	return engine.Do[relay.AckOutcome](p.w, a)
}

// AcknowledgeThen is Acknowledge without waiting. The writer's goroutine calls done, in
// the order of the calls; done must not block. If the store accepts no more writes,
// AcknowledgeThen calls done itself.
func (p *Progress) AcknowledgeThen(a *relay.Acknowledge, done func(relay.AckOutcome, error)) {
	p.decideAck(a)
	engine.Then(p.w, a, done)
}

// decideAck sets the fields that this machine decides.
func (p *Progress) decideAck(a *relay.Acknowledge) {
	if relay.IsFinal(a.Status) {
		a.Learns = p.lessons.Learns()
	}
}

func (room *Progress) acknowledge(t *engine.Tx, a *relay.Acknowledge) (relay.AckOutcome, error) {
	m, err := room.forRecipient(t, a.ID, a.Key, "acknowledge it")
	if err != nil {
		return relay.AckOutcome{}, err
	}
	if m.State == relay.Expired {
		room.NoteChange(t, relay.Change{At: m.ExpiresAt, Freed: true}, m)
		return relay.AckOutcome{}, errExpired(m)
	}
	again, err := room.isAgain(t, a, m)
	if err != nil {
		return relay.AckOutcome{}, err
	}
	if again {
		return room.acknowledgeAgain(t, a, m)
	}
	if err := room.countAck(t, a, m); err != nil {
		return relay.AckOutcome{}, err
	}
	state, first := relay.Acknowledged, m.State != relay.Acknowledged
	if relay.ReportsProgress(a.Status) {
		state, first = max(m.State, relay.Delivered), false
	}
	status, err := room.dictionary.Intern(t, a.Status)
	if err != nil {
		return relay.AckOutcome{}, err
	}
	p := t.Position(a.At)
	r := receipt{at: p, state: state, status: status, clientTS: a.ClientTS, detail: a.Detail, key: a.Key, nonce: a.Nonce}
	if a.RetryAfter != 0 {
		r.until = a.At.Add(a.RetryAfter)
	}
	sought, err := room.addReceipt(t, m, r)
	if err != nil {
		return relay.AckOutcome{}, err
	}
	if !relay.IsFinal(a.Status) {
		sought = ""
	} else {
		room.lessons.Ended(t, a, m, sought, p)
	}
	if m.DeliveredAt.IsZero() {
		m.DeliveredAt = p.Time()
	}
	if first {
		m.AcknowledgedAt = p.Time()
	}
	if err := room.setState(t, m, state, p, isAck, sought); err != nil {
		return relay.AckOutcome{}, err
	}
	if state.Pending() {
		if err := room.progressed(t, m, a, p); err != nil {
			return relay.AckOutcome{}, err
		}
	}
	m.Ack = &relay.Ack{Status: a.Status, ClientTS: a.ClientTS, At: p.Time(), Detail: a.Detail}
	room.noteReceipt(t, m, p, p.Time(), true)
	return relay.AckOutcome{ID: m.ID, State: state, Status: a.Status, ClientTS: a.ClientTS,
		AcknowledgedAt: m.AcknowledgedAt}, nil
}

// isAgain reports whether an acknowledgement follows a final one, or repeats the latest one. A
// worker that only renews its lease repeats the latest status without knowing its detail.
func (p *Progress) isAgain(t *engine.Tx, a *relay.Acknowledge, m *relay.Message) (bool, error) {
	switch {
	case m.Ack == nil:
		return false, nil
	case relay.IsFinal(m.Ack.Status):
		return true, nil
	case m.Ack.Status != a.Status || a.RetryAfter != 0:
		return false, nil
	case m.Ack.Detail == a.Detail:
		return true, nil
	case a.Status != relay.Processing || a.Detail != "" || !p.attempts:
		return false, nil
	}
	held, err := messages.AttemptOf(&t.Rx, m.Position)
	return held.Key == a.Key && !m.Ack.At.Before(held.Since.Time()), err
}

// acknowledgeAgain answers an acknowledgement that follows a final one, or repeats the latest one. No
// receipt is written; a lease is renewed. In each case the recipient has answered for the message, so it
// no longer takes a place in the window.
func (p *Progress) acknowledgeAgain(t *engine.Tx, a *relay.Acknowledge, m *relay.Message) (relay.AckOutcome, error) {
	p.NoteChange(t, relay.Change{At: m.Ack.At, Freed: true}, m)
	if m.Ack.Status != a.Status {
		return relay.AckOutcome{}, relay.Errorf(relay.AlreadyAcknowledged, "the message was acknowledged as %s at %s",
			m.Ack.Status, relay.FormatTime(m.Ack.At))
	}
	if m.State.Pending() {
		if err := p.progressed(t, m, a, t.Last); err != nil {
			return relay.AckOutcome{}, err
		}
	}
	return relay.AckOutcome{ID: m.ID, State: m.State, Status: m.Ack.Status, ClientTS: m.Ack.ClientTS,
		AcknowledgedAt: m.AcknowledgedAt, Duplicate: true}, nil
}

// MaxAcks is how many acknowledgements that are not final one message may have. Each is
// a row, and a receipt to the sender.
const MaxAcks = 1000

// countAck counts an acknowledgement that is not final, or refuses it if the message
// has had MaxAcks of them.
func (p *Progress) countAck(t *engine.Tx, a *relay.Acknowledge, m *relay.Message) error {
	if m.Ack == nil || relay.IsFinal(a.Status) {
		return nil
	}
	n, err := t.C.Number("SELECT acks FROM progress WHERE message = ?", int64(m.Position))
	if err != nil {
		return err
	}
	if n >= MaxAcks-1 { // the first one is not counted
		p.NoteChange(t, relay.Change{At: m.Ack.At, Freed: true}, m)
		return relay.Errorf(relay.TooManyAcks, "the message has had %d acknowledgements that were not final; "+
			"now only completed, failed or rejected is taken", MaxAcks)
	}
	return t.C.Exec("INSERT INTO progress (message, acks) VALUES (?, 1) ON CONFLICT (message) DO UPDATE "+
		"SET acks = acks + 1", int64(m.Position))
}

// MarkDelivered records that a message has been delivered, and returns once that is
// durable (PROTOCOL §3, Mark Delivered). It never moves a state back. Errors:
// MessageNotFound, RecipientOnly, MessageExpired, UnknownKey, KeyRevoked, KeyExpired, and
// those of every write. Any goroutine may call it.
func (p *Progress) MarkDelivered(m *relay.MarkDelivered) (relay.DeliveredOutcome, error) {
	return engine.Do[relay.DeliveredOutcome](p.w, m)
}

func (room *Progress) markDelivered(t *engine.Tx, d *relay.MarkDelivered) (relay.DeliveredOutcome, error) {
	m, err := room.forRecipient(t, d.ID, d.Key, "mark it as delivered")
	if err != nil {
		return relay.DeliveredOutcome{}, err
	}
	if m.State == relay.Expired {
		return relay.DeliveredOutcome{}, errExpired(m)
	}
	if m.State == relay.Queued {
		p := t.Position(d.At)
		if _, err := room.addReceipt(t, m, receipt{at: p, state: relay.Delivered, key: d.Key, nonce: d.Nonce}); err != nil {
			return relay.DeliveredOutcome{}, err
		}
		m.DeliveredAt = p.Time()
		if err := room.setState(t, m, relay.Delivered, p, !isAck, ""); err != nil {
			return relay.DeliveredOutcome{}, err
		}
		room.noteReceipt(t, m, p, p.Time(), false)
	}
	return relay.DeliveredOutcome{ID: m.ID, State: m.State, DeliveredAt: m.DeliveredAt}, nil
}

// forRecipient reads a message for the key of its recipient. what is the action, for the error
// sentence. Errors: MessageNotFound, RecipientOnly, UnknownKey, KeyRevoked, KeyExpired.
func (p *Progress) forRecipient(
	t *engine.Tx, id relay.MessageID, key relay.KeyNumber, what string,
) (*relay.Message, error) {
	recipient, err := p.directory.Caller(t, key)
	if err != nil {
		return nil, err
	}
	m, err := messages.ByID(&t.Rx, id)
	if err == nil && m.Recipient != recipient.Mecha.Number {
		return nil, messages.ErrRecipientOnly(what)
	}
	return m, err
}

// receipt is a row of the table `receipt`.
type receipt struct {
	at       relay.Position
	state    relay.State // the message's new state
	status   int64       // the number of the status; 0 if the receipt is not an acknowledgement
	clientTS string
	detail   string
	key      relay.KeyNumber // 0 if the relay itself made the receipt
	nonce    relay.NonceHash
	notice   relay.Notice
	until    time.Time // the end of a lease or deferral that begins; else zero
}

// addReceipt adds a receipt to the chain of a message. setState must follow. sought has the
// words of the search by which the recipient was found, or "".
func (p *Progress) addReceipt(t *engine.Tx, m *relay.Message, r receipt) (sought string, err error) {
	var previous any
	_, err = t.C.Row(func(r *sqlite.Rows) { previous, sought = r.Value(0), r.Text(1) },
		"SELECT receipt, sought FROM message WHERE position = ?", int64(m.Position))
	if err != nil {
		return "", err
	}
	return sought,
		t.C.Exec(
			`INSERT INTO receipt (position, message, previous, state, status, client_ts, detail, key, nonce, notice, until)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, int64(r.at), int64(m.Position), previous, int64(r.state),
			sqlite.OrNull(r.status), sqlite.OrNull(r.clientTS), sqlite.OrNull(r.detail), sqlite.OrNull(int64(r.key)),
			sqlite.OrNull(int64(r.nonce)), sqlite.OrNull(int64(r.notice)), sqlite.OrNull(relay.MilliOf(r.until)))
}

const isAck = true // an argument of setState: the receipt is an acknowledgement

const (
	stateUpdate = "UPDATE message SET state = ?, open = ?, delivered_at = ?, acknowledged_at = ?, receipt = ?, " +
		"ack = coalesce(?, ack)"
	andForgetWords = ", sought = NULL"
	ofMessage      = " WHERE position = ?"
)

// setState sets a message's state and times, with p as its latest receipt, and keeps the count
// of pending messages. ended has the words of the message's search if no other state and no
// final status can follow: then the message loses them; else it is "".
func (room *Progress) setState(
	t *engine.Tx, m *relay.Message, state relay.State, p relay.Position, acks bool, ended string,
) error {
	if m.State.Pending() && !state.Pending() {
		room.mailbox.AddPending(t, m.Recipient, -1)
		if err := room.mailbox.MarkDone(t, m); err != nil {
			return err
		}
		if err := room.dropAttempt(t, m.Position); err != nil {
			return err
		}
	}
	m.State = state
	ack := any(nil)
	if acks {
		ack = int64(p)
	}
	query := stateUpdate + ofMessage // most messages name no search, and should not bear its cost
	if ended != "" {
		query = stateUpdate + andForgetWords + ofMessage
	}
	return t.C.Exec(query, int64(state), state.Pending(), sqlite.OrNull(relay.MilliOf(m.DeliveredAt)),
		sqlite.OrNull(relay.MilliOf(m.AcknowledgedAt)), int64(p), ack, int64(m.Position))
}

// noteReceipt adds the change that a receipt records to the changes for the listeners.
func (p *Progress) noteReceipt(t *engine.Tx, m *relay.Message, receipt relay.Position, at time.Time, freed bool) {
	p.NoteChange(t, relay.Change{Receipt: receipt, At: at, Freed: freed, New: true}, m)
}

// NoteChange adds a change to those for the listeners, and fills in the fields that come
// from its message.
func (p *Progress) NoteChange(t *engine.Tx, c relay.Change, m *relay.Message) {
	c.Position, c.ID, c.Sender, c.Recipient, c.State = m.Position, m.ID, m.Sender, m.Recipient, m.State
	if m.Ack != nil && m.State != relay.Expired && c.Notice == relay.NoNotice {
		c.Status, c.Detail = m.Ack.Status, m.Ack.Detail
	}
	t.Brought.Changes = append(t.Brought.Changes, c)
}

func errExpired(m *relay.Message) error {
	return relay.Errorf(relay.MessageExpired, "the message expired at %s", relay.FormatTime(m.ExpiresAt))
}
