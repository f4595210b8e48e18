package retention

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/names"
	"relay/db/internal/replays"
	"relay/db/internal/sending"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

const (
	pruneRows    = 400     // receipts and messages after which a write stops
	pruneBytes   = 1 << 20 // payload bytes after which it stops
	receiptGrace = 10 * time.Second
)

// A pruneCandidate is a message that a PruneMessages examines.
type pruneCandidate struct {
	names.Message
	open      bool
	state     relay.State
	receipt   relay.Position // the latest, or 0
	expiresAt int64          // Unix ms; 0: never
	keyed     bool           // it came with an Idempotency-Key
	nonce     int64
	bytes     int64
}

const candidateColumns = `SELECT position, recipient, sender, coalesce(conversation, 0), open, state,
	coalesce(receipt, 0), coalesce(expires_at, 0), idempotency_key IS NOT NULL, nonce, payload_bytes,
	coalesce(in_reply_to, 0) FROM message `

// pruneMessages removes messages. Its outcome says where the next write continues.
func (r *Retention) pruneMessages(t *engine.Tx, p *relay.PruneMessages) (out relay.Pruned, err error) {
	all, more, err := r.candidates(t, p)
	if err != nil {
		return out, err
	}
	d := rowDeleter{Retention: r, t: t, at: p.At}
	for _, m := range all {
		if d.rows >= pruneRows || out.Bytes >= pruneBytes {
			more = true
			break
		}
		out.After, out.ExpiredAfter = m.At, relay.UnixMilli(m.expiresAt)
		stays, err := stays(&t.Rx, m, p.At)
		if err != nil {
			return out, err
		}
		if stays {
			out.Kept++
			continue
		}
		if err := d.take(m); err != nil {
			return out, err
		}
		out.Messages, out.Bytes = out.Messages+1, out.Bytes+m.bytes
	}
	out.More = more
	return out, d.finish()
}

// candidates reads the messages that a write examines, in its order. more says that there
// are further ones.
func (room *Retention) candidates(t *engine.Tx, p *relay.PruneMessages) (all []pruneCandidate, more bool, err error) {
	limit := max(p.Limit, 1)
	text, args := candidateColumns+"WHERE position > ? AND position < ? ORDER BY position LIMIT ?",
		[]any{int64(p.After), int64(p.Before), int64(limit + 1)}
	if !p.ExpiredBefore.IsZero() {
		text = candidateColumns +
			`INDEXED BY message_expired WHERE state = 3 AND (expires_at, position) > (?, ?) AND expires_at < ?
			ORDER BY expires_at, position LIMIT ?`
		args = []any{relay.MilliOf(p.ExpiredAfter), int64(p.After), relay.MilliOf(p.ExpiredBefore), int64(limit + 1)}
	}
	return engine.Page(t.C.Query(text, args...), limit,
		func(r *sqlite.Rows) (pruneCandidate, error) { return readCandidate(r), nil })
}

// readCandidate makes a pruneCandidate of the present row.
func readCandidate(r *sqlite.Rows) pruneCandidate {
	return pruneCandidate{
		Message: names.Message{At: relay.Position(r.Int(0)), Recipient: relay.MechaNumber(r.Int(1)),
			Sender: relay.MechaNumber(r.Int(2)), Conversation: r.Int(3), Question: relay.Position(r.Int(11))},
		open: r.Int(4) != 0, state: relay.State(r.Int(5)), receipt: relay.Position(r.Int(6)), expiresAt: r.Int(7),
		keyed: r.Int(8) != 0, nonce: r.Int(9), bytes: r.Int(10),
	}
}

// stays reports whether a message must stay for now: its Idempotency-Key still answers for
// it, it is about to expire, or its sender may not have the latest receipt yet.
func stays(x *engine.Rx, m pruneCandidate, at time.Time) (bool, error) {
	if m.open && m.expiresAt != 0 && m.expiresAt <= at.UnixMilli() {
		return true, nil
	}
	if m.receipt > relay.PositionAt(at.Add(-receiptGrace)) {
		return true, nil
	}
	if !m.keyed {
		return false, nil
	}
	accepted, err := engine.Accepted(x, m.At)
	return at.Sub(accepted) <= sending.IdempotencyWindow, err
}

// CountPrunable counts what a PruneMessages at a time would remove of the messages before a
// position, in the next rows after r.After.
func CountPrunable(x *engine.Rx, r *relay.Pruned, before relay.Position, at time.Time, limit int) error {
	r.More = false
	rows := x.C.Query(candidateColumns+"WHERE position > ? AND position < ? ORDER BY position LIMIT ?",
		int64(r.After), int64(before), int64(limit))
	for rows.Next() {
		m := readCandidate(rows)
		r.After, r.More = m.At, true
		stays, err := stays(x, m, at)
		if err != nil {
			rows.Close()
			return err
		}
		if stays {
			r.Kept++
		} else {
			r.Messages, r.Bytes = r.Messages+1, r.Bytes+m.bytes
		}
	}
	return rows.Close()
}

// A rowDeleter collects what belongs to the messages that a write removes, and then
// deletes the rows of each table together.
type rowDeleter struct {
	*Retention
	t        *engine.Tx
	at       time.Time
	rows     int
	messages []names.Message
	opened   []names.Message // messages that were pending
	receipts []relay.Position
}

// take adds a message and its chain of receipts, and keeps the nonces that could still be
// used again.
func (d *rowDeleter) take(m pruneCandidate) error {
	d.rows++
	d.messages = append(d.messages, m.Message)
	if err := d.keepNonce(m.At, m.nonce); err != nil {
		return err
	}
	for next := m.receipt; next != 0; {
		d.rows++
		d.receipts = append(d.receipts, next)
		var previous relay.Position
		var nonce int64
		_, err := d.t.C.Row(func(r *sqlite.Rows) { previous, nonce = relay.Position(r.Int(0)), r.Int(1) },
			"SELECT previous, nonce FROM receipt WHERE position = ?", int64(next))
		if err == nil {
			err = d.keepNonce(next, nonce)
		}
		if err != nil {
			return err
		}
		if previous >= next { // a chain leads back in time, else reading would not end
			return ErrChain(next, previous)
		}
		next = previous
	}
	if !m.open {
		return nil
	}
	d.opened = append(d.opened, m.Message)
	d.mailbox.AddPending(d.t, m.Recipient, -1)
	d.progress.NoteChange(d.t, relay.Change{At: d.at, Freed: true}, &relay.Message{Position: m.At,
		ID: d.t.IDs.Message(m.At), Sender: m.Sender, Recipient: m.Recipient, State: m.state})
	return nil
}

// keepNonce keeps the nonce of a row that is deleted while a start might still read it.
func (d *rowDeleter) keepNonce(p relay.Position, nonce int64) error {
	if nonce == 0 || p < relay.PositionAt(d.at.Add(-replays.NonceKept)) {
		return nil
	}
	return d.t.C.Exec("INSERT INTO kept_nonce (position, nonce) VALUES (?, ?)", int64(p), nonce)
}

// finish deletes the rows. The rows of mailboxes are deleted later, except those of
// pending messages, which are counted.
func (d *rowDeleter) finish() error {
	if len(d.messages) == 0 {
		return nil
	}
	t := d.t
	if err := d.replays.DropNonces(t, d.at); err != nil {
		return err
	}
	position := func(m names.Message) relay.Position { return m.At }
	of := mailbox.JSONList(d.messages, position)
	for _, q := range []string{
		"DELETE FROM payload WHERE position IN (SELECT value FROM json_each(?))",
		"DELETE FROM attempt WHERE message IN (SELECT value FROM json_each(?))",
		"DELETE FROM progress WHERE message IN (SELECT value FROM json_each(?))",
		"DELETE FROM message WHERE position IN (SELECT value FROM json_each(?))",
	} {
		if err := t.C.Exec(q, of); err != nil {
			return err
		}
	}
	if len(d.receipts) > 0 {
		err := t.C.Exec("DELETE FROM receipt WHERE position IN (SELECT value FROM json_each(?))",
			mailbox.JSONList(d.receipts, func(p relay.Position) relay.Position { return p }))
		if err != nil {
			return err
		}
	}
	for _, m := range d.opened {
		if err := t.C.Exec("DELETE FROM received WHERE mecha = ? AND open = 1 AND position = ?",
			int64(m.Recipient), int64(m.At)); err != nil {
			return err
		}
	}
	if err := d.mailbox.Unlist(t, d.messages); err != nil {
		return err
	}
	if err := d.sending.LeaveConversations(t, d.messages); err != nil {
		return err
	}
	return d.keepLast(t, t.Last)
}

// keepLast keeps the last position in the settings, because the rows that had it may be deleted.
func (r *Retention) keepLast(t *engine.Tx, p relay.Position) error {
	return t.C.Exec("UPDATE setting SET value = ?1 WHERE name = 'last_position' AND value < ?1", int64(p))
}
