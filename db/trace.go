package db

import (
	"context"

	"relay/db/inspect"
	"relay/db/relay"
)

// Trace tells a party of a message its life, as Inspector.Trace does, and the situation by
// which relay.Judge judges (PROTOCOL §3, Trace). looked is how many rows were looked through
// for it. Errors: NotAParty, MessageNotFound; NotCurrent; RateLimited, if too many reads of the Mecha
// wait. Safe for concurrent use.
func (d *DB) Trace(ctx context.Context, caller relay.Mecha, id relay.MessageID) (t *inspect.Trace, looked int, err error) {
	if err := d.w.AwaitMessage(ctx, id); err != nil {
		return nil, 0, err
	}
	t, looked, err = readTrace(ctx, d.w.As(caller.Number), id, asParty(caller.Number), pushRows)
	if err != nil {
		return nil, looked, err
	}
	seen, visible, err := d.Presence(ctx, caller, t.Message.Recipient)
	t.Situation.LastSeen, t.Situation.Hidden = seen, !visible
	if !visible {
		hidePushes(t)
	}
	return t, looked, err
}
