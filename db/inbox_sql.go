package db

import (
	"context"
	"math"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Inbox counts the pending messages of a Mecha (PROTOCOL §3, Inbox count). It reads
// them all.
func (d *DB) Inbox(ctx context.Context, id relay.MechaNumber) (in relay.Inbox, err error) {
	err = d.read(ctx, func(x *rx) error {
		in, err = x.inbox(id)
		return err
	})
	return in, err
}

func (x *rx) inbox(id relay.MechaNumber) (relay.Inbox, error) {
	in := relay.Inbox{ByPriority: map[string]int{}}
	counts := map[int64]int{}
	var oldest, newest relay.Position
	pending, args, err := x.pending(id)
	if err != nil {
		return in, err
	}
	r := x.c.Query("SELECT priority, count(*), min(m.position), max(m.position) FROM ("+pending+`) p CROSS JOIN message m ON m.position = p.position
		WHERE m.expires_at IS NULL OR m.expires_at > ? GROUP BY priority`, append(args, x.now.UnixMilli())...)
	for r.Next() {
		counts[r.Int(0)] = int(r.Int(1))
		in.Pending += int(r.Int(1))
		if p := relay.Position(r.Int(2)); oldest == 0 || p < oldest {
			oldest = p
		}
		newest = max(newest, relay.Position(r.Int(3)))
	}
	if err := r.Close(); err != nil {
		return in, err
	}
	for word, n := range counts {
		text, err := x.word(word)
		if err != nil {
			return in, err
		}
		in.ByPriority[text] = n
	}
	if in.Pending > 0 {
		in.Oldest, in.Newest = x.ids.Message(oldest), x.ids.Message(newest)
	}
	return in, nil
}

// countOpen counts the pending messages of a Mecha, with those that are due to expire.
func (x *rx) countOpen(id relay.MechaNumber) (n int, err error) {
	pending, args, err := x.pending(id)
	if err != nil {
		return 0, err
	}
	_, err = x.c.Row(func(r *sqlite.Rows) { n = int(r.Int(0)) }, "SELECT count(*) FROM ("+pending+")", args...)
	return n, err
}

// pending gives a query for the positions of a Mecha's pending messages. LIMIT -1, which
// is no limit, keeps their order, so that SQLite merges its parts without a sort.
func (x *rx) pending(id relay.MechaNumber) (text string, args []any, err error) {
	u, err := x.findUnindexed(id, 0, math.MaxInt64, true)
	if err != nil {
		return "", nil, err
	}
	text, args = "SELECT position FROM received WHERE mecha = ? AND open = 1", []any{int64(id)}
	if late, more := u.query(relay.In, true, false, 0, math.MaxInt64); late != "" {
		text += " UNION " + late + " ORDER BY position LIMIT -1"
		args = append(args, more...)
	}
	return text, args, nil
}
