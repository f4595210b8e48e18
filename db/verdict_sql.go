package db

import (
	"context"
	"slices"
	"time"

	"relay/db/inspect"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// pushRows bounds how many rows of `push` the server looks through for one trace. Pushes
// that come later than that are not told.
const pushRows = 4 * pushPage

// Trace tells a party of a message its life, as Inspector.Trace does, and the situation by
// which relay.Judge judges (PROTOCOL §3, Trace). looked is how many rows were looked through
// for it. Errors: NotAParty, MessageNotFound; NotCurrent; RateLimited, if too many reads of the Mecha
// wait. Safe for concurrent use.
func (d *DB) Trace(ctx context.Context, caller relay.Mecha, id relay.MessageID) (t *inspect.Trace, looked int, err error) {
	if err := d.awaitMessage(ctx, id); err != nil {
		return nil, 0, err
	}
	t = &inspect.Trace{}
	err = d.readIn(ctx, d.readers.point(caller.Number), func(x *rx) error {
		if t.Message, err = x.messageByID(id); err != nil {
			return err
		}
		if caller.Number != t.Message.Sender && caller.Number != t.Message.Recipient {
			return relay.Errorf(relay.NotAParty, "you are neither the sender nor the recipient of this message")
		}
		return x.trace(t)
	})
	if err != nil {
		return nil, 0, err
	}
	from := t.Message.Position
	for looked < pushRows && from != 0 {
		err := d.readIn(ctx, d.readers.scan(caller.Number), func(x *rx) error {
			from, err = x.tracePushes(from, t)
			return err
		})
		if err != nil {
			return nil, looked, err
		}
		looked += pushPage
	}
	order(t)
	found, err := d.Reply(ctx, relay.ReplyQuery{Question: t.Message})
	if err != nil {
		return nil, looked, err
	}
	t.Situation.Answer = found.Reply
	seen, visible, err := d.Presence(ctx, caller, t.Message.Recipient)
	t.Situation.LastSeen, t.Situation.Hidden = seen, !visible
	if !visible {
		hidePushes(t)
	}
	return t, looked + found.Looked, err
}

// hidePushes leaves out what tells when the recipient was connected.
func hidePushes(t *inspect.Trace) {
	t.Steps = slices.DeleteFunc(t.Steps, func(s inspect.Step) bool { return s.What == inspect.StepPushed })
	t.Situation.PushedAt, t.Situation.Sockets = time.Time{}, 0
}

// trace reads the receipts of a message, and the situation as far as one view has it. A
// message that retention removes meanwhile is MessageNotFound.
func (x *rx) trace(t *inspect.Trace) error {
	m := t.Message
	if err := x.traceReceipts(t); err != nil {
		return err
	}
	s := &t.Situation
	s.Message = m
	alive := false
	_, err := x.c.Row(func(r *sqlite.Rows) { alive = r.Null(0) }, "SELECT removed_at FROM mecha WHERE id = ?", int64(m.Recipient))
	if err == nil && alive {
		alive, err = x.c.Row(nil, "SELECT 1 FROM mecha_key WHERE mecha = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) LIMIT 1", int64(m.Recipient), x.now.UnixMilli())
	}
	if s.RecipientGone = !alive; err != nil || !m.State.Pending() {
		return err
	}
	a, err := x.attemptOf(m.Position)
	if err != nil {
		return err
	}
	if a.number > 1 {
		s.Begun = a.since.Time()
	}
	if !a.until.IsZero() {
		s.Until, s.Since, s.Claimed, s.Worker = a.until, a.since.Time(), a.key != 0, a.worker
	}
	s.Ahead, err = x.countAhead(m.Recipient, m.Position)
	return err
}
