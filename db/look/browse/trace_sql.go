package browse

import (
	"context"
	"math"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/look"
	"relay/db/relay"
)

// Trace returns the life of a message. A push is stored with a later commit, so the
// latest may not be in the file yet. The end of ctx ends the search for pushes. Errors:
// MessageNotFound, and the error of ctx.
func (i Inspector) Trace(ctx context.Context, id relay.MessageID) (*look.Trace, error) {
	return i.trace(ctx, id, math.MaxInt)
}

// Why is Trace, but looks for pushes only as far as a server does.
func (i Inspector) Why(ctx context.Context, id relay.MessageID) (*look.Trace, error) {
	return i.trace(ctx, id, look.PushRows)
}

func (i Inspector) trace(ctx context.Context, id relay.MessageID, rows int) (*look.Trace, error) {
	t, _, err := look.ReadTrace(ctx, i, id, nil, rows)
	if err != nil {
		return nil, err
	}
	seen, err := look.See(i, func(x *engine.Rx) (time.Time, error) { return lastSeen(x, t.Message.Recipient) })
	t.Situation.LastSeen = later(seen, sawRecipient(t))
	return t, err
}

// lastSeen returns when a Mecha was last active, as far as the file has it.
func lastSeen(x *engine.Rx, id relay.MechaNumber) (time.Time, error) {
	h, err := HealthOf(x, id)
	if err != nil {
		return time.Time{}, err
	}
	positions, args, err := messages.NewestOf(x, id, relay.Out, 0, 1)
	if err != nil {
		return time.Time{}, err
	}
	sent, err := x.C.Number("SELECT max(position) FROM ("+positions+")", args...)
	if err != nil {
		return time.Time{}, err
	}
	return LastActivity(x, h.Used, relay.Position(sent))
}

// sentItself finds a message, unless an operator sent it from a console: with a key that has the
// console's label, and that no request has used.
const sentItself = `SELECT 1 FROM message m JOIN mecha_key k ON k.id = m.sender_key
	WHERE m.position = ? AND (k.label <> '` + relay.OperatorLabel + `' OR EXISTS (SELECT 1 FROM key_use WHERE key = k.id))`

// LastActivity returns when a Mecha was last active: when its key was used, or when it sent its newest
// message, whose position is newest, or 0. The use of a key is noted up to a minute later. A message that
// an operator sent for it from a console does not count.
func LastActivity(x *engine.Rx, used time.Time, newest relay.Position) (time.Time, error) {
	if newest == 0 || !newest.Time().After(used) {
		return used, nil
	}
	itself, err := x.C.Row(nil, sentItself, int64(newest))
	if itself {
		used = newest.Time()
	}
	return used, err
}

// sawRecipient returns the latest time at which the trace itself shows the recipient. The file has
// the time of its last request only to about a minute.
func sawRecipient(t *look.Trace) (at time.Time) {
	for _, s := range t.Steps {
		if s.What != look.StepAccepted && s.Key != "" {
			at = later(at, s.At)
		}
	}
	if a := t.Situation.Answer; a != nil {
		at = later(at, a.CreatedAt)
	}
	return at
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
