package progress

import (
	"relay/db/internal/engine"
	"relay/db/relay"
)

// Tell adds a receipt that changes nothing to a message: a notice of the relay to the
// sender.
func (room *Progress) Tell(t *engine.Tx, m *relay.Message, what relay.Notice, p relay.Position) error {
	if err := room.addNotice(t, m, receipt{at: p, notice: what}); err != nil {
		return err
	}
	room.NoteChange(t, relay.Change{Receipt: p, At: p.Time(), New: true, Notice: what}, m)
	return nil
}

// addNotice adds a receipt that changes no state to the chain of a message.
func (p *Progress) addNotice(t *engine.Tx, m *relay.Message, r receipt) error {
	r.state = m.State
	if r.state == relay.Expired { // At may have set it, before the write that expires it
		stored, err := t.C.Number("SELECT state FROM message WHERE position = ?", int64(m.Position))
		if err != nil {
			return err
		}
		r.state = relay.State(stored)
	}
	if _, err := p.addReceipt(t, m, r); err != nil {
		return err
	}
	return t.C.Exec("UPDATE message SET receipt = ? WHERE position = ?", int64(r.at), int64(m.Position))
}

const earliestAckBy = `SELECT min(ack_by) FROM message INDEXED BY message_ack_by ` +
	`WHERE ack_by IS NOT NULL AND open = 1 AND overdue IS NULL`

// noteOverdue notifies the senders of up to dueAtOnce pending messages whose AckBy has
// come.
func (p *Progress) noteOverdue(t *engine.Tx, o *relay.NoteOverdue) (NextDue, error) {
	due, next, err := p.dueMessages(t, o.At, `SELECT position, ack_by FROM message INDEXED BY message_ack_by
		WHERE ack_by IS NOT NULL AND open = 1 AND overdue IS NULL ORDER BY ack_by, position LIMIT ?`)
	if err != nil {
		return 0, err
	}
	for _, m := range due {
		if err := t.C.Exec("UPDATE message SET overdue = 1 WHERE position = ?", int64(m.Position)); err != nil {
			return 0, err
		}
		if m.State == relay.Expired { // its receipt says more to the sender
			continue
		}
		if err := p.Tell(t, m, relay.NoticeOverdue, t.Position(o.At)); err != nil {
			return 0, err
		}
	}
	return next, nil
}
