package progress

import (
	"fmt"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

const earliestExpiry = "SELECT min(expires_at) FROM message INDEXED BY message_expiry " +
	"WHERE open = 1 AND expires_at IS NOT NULL"

// expireDue expires up to dueAtOnce messages whose ExpiresAt has come.
func (p *Progress) expireDue(t *engine.Tx, e *relay.ExpireDue) (NextDue, error) {
	due, next, err := p.dueMessages(t, e.At, `SELECT position, expires_at FROM message INDEXED BY message_expiry
		WHERE open = 1 AND expires_at IS NOT NULL ORDER BY expires_at, position LIMIT ?`)
	if err != nil {
		return 0, err
	}
	for _, m := range due {
		m.State = relay.Queued // At has set it to Expired; the file has Queued or Delivered, both pending
		if err := p.expire(t, m, e.At, ""); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// expiredByOperator is the detail of an expiry that an operator has asked for. Traces show it.
const expiredByOperator = "an operator let it expire"

// expire makes a pending message, whose ExpiresAt has come, an expired one. detail says why,
// unless its time is over.
func (room *Progress) expire(t *engine.Tx, m *relay.Message, at time.Time, detail string) error {
	p := t.Position(at)
	sought, err := room.addReceipt(t, m, receipt{at: p, state: relay.Expired, detail: detail})
	if err != nil {
		return err
	}
	if err := room.setState(t, m, relay.Expired, p, !isAck, sought); err != nil {
		return err
	}
	room.noteReceipt(t, m, p, m.ExpiresAt, true)
	return nil
}

// expireMessage expires a message. Errors: MessageNotFound; AlreadyAcknowledged or
// MessageExpired, of one that is not pending.
func (room *Progress) expireMessage(t *engine.Tx, e *relay.ExpireMessage) (engine.None, error) {
	var m *relay.Message
	p, ok := t.IDs.MessagePosition(e.ID)
	if ok {
		var err error
		if m, err = messages.At(&t.Rx, p); err != nil {
			return engine.None{}, err
		}
	}
	switch {
	case m == nil:
		return engine.None{}, messages.ErrNoMessage(e.ID)
	case m.State == relay.Expired:
		return engine.None{}, errExpired(m)
	case !m.State.Pending():
		return engine.None{}, relay.Errorf(relay.AlreadyAcknowledged,
			"the message is acknowledged: it cannot expire any more")
	}
	m.ExpiresAt = relay.UnixMilli(relay.MilliOf(e.At))
	if err := t.C.Exec("UPDATE message SET expires_at = ? WHERE position = ?", relay.MilliOf(e.At), int64(p)); err != nil {
		return engine.None{}, err
	}
	return engine.None{}, room.expire(t, m, e.At, expiredByOperator)
}

// dueMessages reads up to dueAtOnce messages that are due at a time, the earliest first, and
// the time when the next one is due. The query returns positions and times, in that order.
func (room *Progress) dueMessages(
	t *engine.Tx, at time.Time, query string,
) (due []*relay.Message, next NextDue, err error) {
	r := t.C.Query(query, int64(dueAtOnce+1))
	var positions []relay.Position
	for r.Next() {
		next = NextDue(r.Int(1))
		if int64(next) > at.UnixMilli() || len(positions) == dueAtOnce {
			break
		}
		positions, next = append(positions, relay.Position(r.Int(0))), 0
	}
	if err := r.Close(); err != nil {
		return nil, 0, err
	}
	for _, p := range positions {
		m, err := messages.At(&t.Rx, p)
		if err == nil && m == nil {
			err = fmt.Errorf("%w: an index of times has position %d, but there is no such message", sqlite.ErrDamaged, p)
		}
		if err != nil {
			return nil, 0, err
		}
		due = append(due, m)
	}
	return due, next, nil
}
