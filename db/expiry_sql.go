package db

import (
	"fmt"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// expiry is the servant that expires messages when their ExpiresAt has come.
type expiry struct {
	w    *writer
	next int64 // the earliest known ExpiresAt of a pending message, in Unix ms; 0: none
}

const (
	expireAtOnce = 500 // messages in one transaction, because other jobs wait for it
	expireRounds = 4   // transactions in a row, before other jobs have their turn
)

// start finds the earliest ExpiresAt.
func (e *expiry) start() (err error) {
	e.next, err = e.w.c.Number("SELECT min(expires_at) FROM message INDEXED BY message_expiry WHERE open = 1 AND expires_at IS NOT NULL")
	return err
}

// expect notes that a message will expire at a time in Unix ms; 0: never.
func (e *expiry) expect(ms int64) {
	if ms != 0 && (e.next == 0 || ms < e.next) {
		e.next = ms
	}
}

func (e *expiry) due(now time.Time) bool { return e.next != 0 && now.UnixMilli() >= e.next }

func (e *expiry) do(now time.Time) {
	write := &relay.ExpireDue{At: now}
	for i := 0; i < expireRounds && e.due(now); i++ {
		failed := false
		e.w.commit([]op{{job: &task[*relay.ExpireDue, nextExpiry]{write: write, decide: (*tx).expireDue, done: func(next nextExpiry, err error) {
			if failed = err != nil; failed {
				e.w.opts.Logger.Error("messages did not expire", "error", err)
				return
			}
			e.next = int64(next)
		}}}})
		if failed {
			return
		}
	}
}

// nextExpiry is the earliest ExpiresAt of the messages that are still pending, in Unix
// ms; 0: none of them expires.
type nextExpiry int64

// expireDue expires up to expireAtOnce messages.
func (t *tx) expireDue(e *relay.ExpireDue) (nextExpiry, error) {
	due, next, err := t.dueMessages(e.At)
	if err != nil {
		return 0, err
	}
	for _, m := range due {
		m.State = relay.Queued // message has set it to Expired; the file has Queued or Delivered, both pending
		p := t.position(e.At)
		if err := t.addReceipt(m, receipt{at: p, state: relay.Expired}); err != nil {
			return 0, err
		}
		if err := t.setState(m, relay.Expired, p, false); err != nil {
			return 0, err
		}
		t.noteReceipt(m, p, m.ExpiresAt, true)
	}
	return next, nil
}

// dueMessages reads up to expireAtOnce messages that are due at a time, the earliest
// first, and the time when the next one is due.
func (t *tx) dueMessages(at time.Time) (due []*relay.Message, next nextExpiry, err error) {
	r := t.c.Query(`SELECT position, expires_at FROM message INDEXED BY message_expiry
		WHERE open = 1 AND expires_at IS NOT NULL ORDER BY expires_at, position LIMIT ?`, int64(expireAtOnce+1))
	var positions []relay.Position
	for r.Next() {
		next = nextExpiry(r.Int(1))
		if int64(next) > at.UnixMilli() || len(positions) == expireAtOnce {
			break
		}
		positions, next = append(positions, relay.Position(r.Int(0))), 0
	}
	if err := r.Close(); err != nil {
		return nil, 0, err
	}
	for _, p := range positions {
		m, err := t.message(p)
		if err == nil && m == nil {
			err = fmt.Errorf("%w: the index of expiry times has position %d, but there is no such message", sqlite.ErrDamaged, p)
		}
		if err != nil {
			return nil, 0, err
		}
		due = append(due, m)
	}
	return due, next, nil
}
