package browse

import (
	"context"
	"math"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/messages"
	"relay/db/internal/sqlite"
	"relay/db/look"
	"relay/db/relay"
)

// Waiting returns what waits for a Mecha, with the traces of the `limit` oldest messages. It
// counts in pieces, each of which sees the file as of its turn. Errors: MechaNotFound, and the
// error of ctx.
func (i Inspector) Waiting(ctx context.Context, a relay.Address, limit int) (*Waiting, error) {
	id, err := i.Number(a)
	if err != nil {
		return nil, err
	}
	w := &Waiting{Mecha: a}
	if err := i.Point(ctx, func(x *engine.Rx) error { return waiting(x, w, id, limit) }); err != nil {
		return nil, err
	}
	for from, rows := relay.Position(0), mailbox.InboxRows; rows == mailbox.InboxRows; {
		err := i.Scan(ctx, func(x *engine.Rx) (err error) {
			from, rows, err = countWaitingFor(x, w, id, from)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if _, err := look.Complete(ctx, gently{i}, math.MaxInt, w.Oldest...); err != nil {
		return nil, err
	}
	for _, t := range w.Oldest {
		w.LastSeen = later(w.LastSeen, sawRecipient(t))
	}
	for _, t := range w.Oldest {
		t.Situation.LastSeen = w.LastSeen
	}
	return w, nil
}

// gently is an Inspector for many short reads in a row, each of which waits first, like a Scan.
type gently struct{ Inspector }

func (g gently) Point(ctx context.Context, f func(*engine.Rx) error) error { return g.Scan(ctx, f) }

// waiting reads the Mecha, and the oldest messages that wait for it.
func waiting(x *engine.Rx, w *Waiting, id relay.MechaNumber, limit int) error {
	h, err := HealthOf(x, id)
	if err != nil {
		return err
	}
	w.Removed, w.LiveKeys, w.LastSeen = h.Removed, h.LiveKeys, h.Used
	oldest, err := oldestPending(x, id, limit)
	if err != nil {
		return err
	}
	for _, m := range oldest {
		t, err := look.TraceOf(x, m)
		if err != nil {
			return err
		}
		w.Oldest = append(w.Oldest, t)
	}
	return nil
}

// oldestPending reads the oldest pending messages of a Mecha.
func oldestPending(x *engine.Rx, id relay.MechaNumber, limit int) ([]*relay.Message, error) {
	pending, args, err := mailbox.Pending(x, id, 0, -1)
	if err != nil {
		return nil, err
	}
	list, _, err := messages.Read(x, limit,
		messages.AllAt(pending)+" WHERE m.open = 1 AND (m.expires_at IS NULL OR m.expires_at > ?)",
		append(args, x.Now.UnixMilli()))
	return list, err
}

// Health is what the file knows of a Mecha's health.
type Health struct {
	Removed  bool // from the directory
	LiveKeys int
	Used     time.Time      // when one of its keys was last used
	Sent     relay.Position // its newest message in the index tables
}

const mechaHealth = "SELECT removed_at, (SELECT count(*) FROM mecha_key k WHERE " + look.LiveKey + "), (" +
	"SELECT max(u.last_used_at) FROM mecha_key k JOIN key_use u ON u.key = k.id " +
	"WHERE k.mecha = m.id), (SELECT max(position) FROM sent WHERE mecha = m.id) FROM mecha m WHERE id = ?2"

// HealthOf reads the health of a Mecha.
func HealthOf(x *engine.Rx, id relay.MechaNumber) (h Health, err error) {
	_, err = x.C.Row(func(r *sqlite.Rows) {
		h = Health{!r.Null(0), int(r.Int(1)), relay.UnixMilli(r.Int(2)), relay.Position(r.Int(3))}
	}, mechaHealth, x.Now.UnixMilli(), int64(id))
	return h, err
}

// countWaitingFor counts a piece of the waiting messages, from a position on. It returns where
// the next piece begins, and how many rows this piece had.
func countWaitingFor(
	x *engine.Rx, w *Waiting, id relay.MechaNumber, from relay.Position,
) (next relay.Position, rows int, err error) {
	pending, args, err := mailbox.Pending(x, id, from, mailbox.InboxRows)
	if err != nil {
		return 0, 0, err
	}
	now := x.Now.UnixMilli()
	_, err = x.C.Row(func(r *sqlite.Rows) {
		rows, next = int(r.Int(0)), relay.Position(r.Int(1))+1
		w.Pending += int(r.Int(2))
		w.Overdue += int(r.Int(3))
		w.Held += int(r.Int(4))
		w.Deferred += int(r.Int(5))
	},
		`SELECT count(*), max(position), count(alive), count(alive) FILTER (WHERE ack_by <= ?), count(alive)
			FILTER (WHERE key IS NOT NULL), count(alive) FILTER (WHERE key IS NULL AND until IS NOT NULL)
		FROM (SELECT m.position, m.ack_by, a.key, a.until, iif(m.expires_at IS NULL OR m.expires_at > ?, 1, NULL) AS alive
			FROM (`+pending+`) p CROSS JOIN message m ON m.position = p.position LEFT JOIN attempt a ON a.message = p.position)`,
		append([]any{now, now}, args...)...)
	return next, rows, err
}
