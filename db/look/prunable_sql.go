package look

import (
	"context"
	"errors"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/retention"
	"relay/db/relay"
)

// Prunable counts the messages that were accepted before a time: how many a Prune removes,
// their payload bytes, and how many must stay for now. It reads the file in several
// views. The end of ctx ends it between two views.
func (i *Inspector) Prunable(ctx context.Context, before, now time.Time) (r relay.Pruned, err error) {
	const rows = 20_000
	for r.More = true; r.More; {
		err := i.Scan(ctx, func(x *engine.Rx) error {
			return retention.CountPrunable(x, &r, relay.PositionAt(before), now, rows)
		})
		if err != nil || ctx.Err() != nil {
			return r, errors.Join(err, ctx.Err())
		}
	}
	return r, nil
}

// ClockSeen returns the latest time at which a server trusted its clock. A message may be
// later, because its server accepted it with a clock in doubt; its time counts if no server
// has noted one. The time is zero if no server and no message shows one.
func (i *Inspector) ClockSeen() (time.Time, error) {
	return See(i, func(x *engine.Rx) (time.Time, error) {
		noted, err := x.C.Number("SELECT value FROM setting WHERE name = 'clock'")
		if at := relay.UnixMilli(noted); err != nil || !at.IsZero() {
			return at, err
		}
		newest, err := x.Newest()
		if newest > 0 {
			return newest.Time(), err
		}
		return time.Time{}, err
	})
}
