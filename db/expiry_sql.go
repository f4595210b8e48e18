package db

import (
	"fmt"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

const earliestExpiry = "SELECT min(expires_at) FROM message INDEXED BY message_expiry WHERE open = 1 AND expires_at IS NOT NULL"

// expireDue expires up to dueAtOnce messages whose ExpiresAt has come.
func (p *progress) expireDue(t *tx, e *relay.ExpireDue) (nextDue, error) {
	due, next, err := p.dueMessages(t, e.At, `SELECT position, expires_at FROM message INDEXED BY message_expiry
		WHERE open = 1 AND expires_at IS NOT NULL ORDER BY expires_at, position LIMIT ?`)
	if err != nil {
		return 0, err
	}
	for _, m := range due {
		m.State = relay.Queued // message has set it to Expired; the file has Queued or Delivered, both pending
		if err := p.expire(t, m, e.At, ""); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// expiredByOperator is the detail of an expiry that an operator has asked for. Traces show it.
const expiredByOperator = "an operator let it expire"

// expire makes a pending message, whose ExpiresAt has come, an expired one. detail says why, if
// it is not that its time was over.
func (room *progress) expire(t *tx, m *relay.Message, at time.Time, detail string) error {
	p := t.position(at)
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

// expireMessage expires a message now. Errors: MessageNotFound; AlreadyAcknowledged or
// MessageExpired, of one that is not pending.
func (room *progress) expireMessage(t *tx, e *relay.ExpireMessage) (none, error) {
	var m *relay.Message
	p, ok := t.IDs.MessagePosition(e.ID)
	if ok {
		var err error
		if m, err = messageAt(&t.rx, p); err != nil {
			return none{}, err
		}
	}
	switch {
	case m == nil:
		return none{}, errNoMessage(e.ID)
	case m.State == relay.Expired:
		return none{}, errExpired(m)
	case !m.State.Pending():
		return none{}, relay.Errorf(relay.AlreadyAcknowledged, "the message is acknowledged: it cannot expire any more")
	}
	m.ExpiresAt = relay.UnixMilli(relay.MilliOf(e.At))
	if err := t.c.Exec("UPDATE message SET expires_at = ? WHERE position = ?", relay.MilliOf(e.At), int64(p)); err != nil {
		return none{}, err
	}
	return none{}, room.expire(t, m, e.At, expiredByOperator)
}

// dueMessages reads up to dueAtOnce messages that are due at a time, the earliest first, and
// the time when the next one is due. The query gives positions and times, in that order.
func (room *progress) dueMessages(t *tx, at time.Time, query string) (due []*relay.Message, next nextDue, err error) {
	r := t.c.Query(query, int64(dueAtOnce+1))
	var positions []relay.Position
	for r.Next() {
		next = nextDue(r.Int(1))
		if int64(next) > at.UnixMilli() || len(positions) == dueAtOnce {
			break
		}
		positions, next = append(positions, relay.Position(r.Int(0))), 0
	}
	if err := r.Close(); err != nil {
		return nil, 0, err
	}
	for _, p := range positions {
		m, err := messageAt(&t.rx, p)
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
