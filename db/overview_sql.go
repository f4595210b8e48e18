package db

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"relay/db/file"
	"relay/db/inspect"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

const overviewMechas = 1000 // that an Overview looks at in one view

// Overview tells what waits for whom. Messages that were accepted before late count in
// Box.Late. It looks at the Mechas in pieces, each of which sees the file as it is in its turn.
// The end of ctx ends it between two of them. The boxes are in no order.
func (i *Inspector) Overview(ctx context.Context, late time.Time) (o inspect.Overview, err error) {
	o.At = time.Now()
	begun := map[int64]bool{}
	for from, more := int64(0), true; more; {
		var found []int64
		err := i.viewGently(ctx, func(x *rx) error {
			if from == 0 {
				n, err := x.c.Number("SELECT count(*) FROM mecha WHERE removed_at IS NULL")
				if o.Mechas = int(n); err != nil {
					return err
				}
				if err := x.column(&found, "SELECT DISTINCT recipient FROM message WHERE position > (SELECT value FROM setting WHERE name = 'indexed_upto') AND open = 1"); err != nil {
					return err
				}
			}
			last, rows := from, 0
			r := x.c.Query("SELECT id, EXISTS (SELECT 1 FROM received WHERE mecha = id AND open = 1) FROM mecha WHERE id > ? ORDER BY id LIMIT ?", from, int64(overviewMechas))
			for ; r.Next(); rows++ {
				if last = r.Int(0); r.Int(1) != 0 {
					found = append(found, last)
				}
			}
			from, more = last, rows == overviewMechas
			if err := r.Close(); err != nil {
				return err
			}
			for _, id := range found {
				if begun[id] {
					continue
				}
				begun[id] = true
				b, err := x.box(relay.MechaNumber(id), relay.PositionAt(late))
				if err != nil {
					return err
				}
				if o.Pending += b.Pending; b.Pending > 0 {
					o.Boxes = append(o.Boxes, b)
				}
			}
			return nil
		})
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// column reads the numbers of a query's first column.
func (x *rx) column(to *[]int64, query string, args ...any) error {
	r := x.c.Query(query, args...)
	for r.Next() {
		*to = append(*to, r.Int(0))
	}
	return r.Close()
}

// box counts what waits for a Mecha.
func (x *rx) box(id relay.MechaNumber, late relay.Position) (b inspect.Box, err error) {
	b.Number = id
	if b.Mecha, err = x.address(int64(id)); err != nil {
		return b, err
	}
	now := x.now.UnixMilli()
	var seen int64
	_, err = x.c.Row(func(r *sqlite.Rows) { b.Removed, b.LiveKeys, seen = !r.Null(0), int(r.Int(1)), r.Int(2) },
		"SELECT removed_at, (SELECT count(*) FROM mecha_key WHERE mecha = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)), ("+
			"SELECT max(u.last_used_at) FROM mecha_key k JOIN key_use u ON u.key = k.id WHERE k.mecha = ?1) FROM mecha WHERE id = ?1", int64(id), now)
	if err != nil {
		return b, err
	}
	b.LastSeen = relay.UnixMilli(seen)
	pending, args, err := x.pending(id, 0, inspect.MostCounted+1)
	if err != nil {
		return b, err
	}
	rows, oldest := 0, relay.Position(0)
	_, err = x.c.Row(func(r *sqlite.Rows) {
		rows, b.Pending, oldest = int(r.Int(0)), int(r.Int(1)), relay.Position(r.Int(2))
		b.Late, b.Overdue, b.Held, b.Deferred = int(r.Int(3)), int(r.Int(4)), int(r.Int(5)), int(r.Int(6))
	}, `SELECT count(*), count(alive), min(alive), count(alive) FILTER (WHERE alive < ?), count(alive) FILTER (WHERE ack_by <= ?), count(alive) FILTER (WHERE key IS NOT NULL),
			count(alive) FILTER (WHERE key IS NULL AND until IS NOT NULL)
		FROM (SELECT m.position, m.ack_by, a.key, a.until, iif(m.expires_at IS NULL OR m.expires_at > ?, m.position, NULL) AS alive
			FROM (`+pending+`) p CROSS JOIN message m ON m.position = p.position AND m.open = 1 LEFT JOIN attempt a ON a.message = p.position)`,
		append([]any{int64(late), now, now}, args...)...)
	if b.More = rows > inspect.MostCounted; b.Pending > inspect.MostCounted {
		b.Pending = inspect.MostCounted
	}
	if oldest != 0 {
		b.Oldest, b.OldestAt = x.ids.Message(oldest), oldest.Time()
	}
	return b, err
}

// Activity counts what happened after a position, in spans of the given length. It looks at up
// to limit rows of messages and of receipts.
func (i *Inspector) Activity(after relay.Position, span time.Duration, limit int) (a inspect.Activity, err error) {
	err = i.view(func(x *rx) error {
		a, err = x.activity(after, span, limit)
		return err
	})
	return a, err
}

func (x *rx) activity(after relay.Position, span time.Duration, limit int) (a inspect.Activity, err error) {
	a.Upto = relay.MaxPosition
	last := after
	for _, table := range []string{"message", "receipt"} {
		_, err := x.c.Row(func(r *sqlite.Rows) {
			if p := relay.Position(r.Int(1)); r.Int(0) == int64(limit) {
				a.Upto, a.More = min(a.Upto, p), true
			} else {
				last = max(last, p)
			}
		}, "SELECT count(*), max(position) FROM (SELECT position FROM "+table+" WHERE position > ? ORDER BY position LIMIT ?)", int64(after), int64(limit))
		if err != nil {
			return a, err
		}
	}
	if !a.More {
		a.Upto = last
	}
	spans := map[int64]*inspect.Span{}
	at := func(n int64) *inspect.Span {
		if spans[n] == nil {
			spans[n] = &inspect.Span{Begin: time.UnixMilli(n * span.Milliseconds())}
		}
		return spans[n]
	}
	r := x.c.Query("SELECT (position >> 12) / ?, count(*) FROM message WHERE position > ? AND position <= ? GROUP BY 1", span.Milliseconds(), int64(after), int64(a.Upto))
	for r.Next() {
		s, n := at(r.Int(0)), int(r.Int(1))
		s.Sent, s.Events = s.Sent+n, s.Events+n
	}
	if err := r.Close(); err != nil {
		return a, err
	}
	// A receipt names the position of its message: so the time between them needs no other table.
	r = x.c.Query(`SELECT (position >> 12) / ?, count(*), count(*) FILTER (WHERE state = 2 AND status IS NOT NULL AND notice IS NULL),
			count(*) FILTER (WHERE state = 2 AND status IN (SELECT id FROM word WHERE text IN ('failed', 'rejected'))),
			count(*) FILTER (WHERE state = 3 AND notice IS NULL),
			sum((position >> 12) - (message >> 12)) FILTER (WHERE state = 2 AND status IS NOT NULL AND notice IS NULL),
			max((position >> 12) - (message >> 12)) FILTER (WHERE state = 2 AND status IS NOT NULL AND notice IS NULL)
		FROM receipt WHERE position > ? AND position <= ? GROUP BY 1`, span.Milliseconds(), int64(after), int64(a.Upto))
	for r.Next() {
		at(r.Int(0)).Add(inspect.Span{Events: int(r.Int(1)), Acked: int(r.Int(2)), Failed: int(r.Int(3)), Expired: int(r.Int(4)),
			Lag: time.Duration(r.Int(5)) * time.Millisecond, MaxLag: time.Duration(r.Int(6)) * time.Millisecond})
	}
	if err := r.Close(); err != nil {
		return a, err
	}
	for _, s := range spans {
		a.Spans = append(a.Spans, *s)
	}
	slices.SortFunc(a.Spans, func(a, b inspect.Span) int { return a.Begin.Compare(b.Begin) })
	return a, nil
}

// Back gives the position after which there are up to most messages, and up to most receipts,
// none of them earlier than since.
func (i *Inspector) Back(since time.Time, most int) (p relay.Position, err error) {
	p = relay.PositionFrom(since)
	err = i.view(func(x *rx) error {
		for _, table := range []string{"message", "receipt"} {
			at, err := x.c.Number("SELECT position FROM "+table+" WHERE position > ? ORDER BY position DESC LIMIT 1 OFFSET ?", int64(p), int64(most))
			if err != nil {
				return err
			}
			p = max(p, relay.Position(at))
		}
		return nil
	})
	return p, err
}

// Newest reads the newest events, up to limit, the oldest first.
func (i *Inspector) Newest(limit int) (list []inspect.Event, err error) {
	err = i.view(func(x *rx) error {
		after := relay.Position(-1)
		// Each table has at most limit of them. Those before the limit-th newest of both are none.
		at, err := x.c.Number("SELECT position FROM (SELECT * FROM (SELECT position FROM message ORDER BY position DESC LIMIT ?1) UNION ALL SELECT * FROM (SELECT position FROM receipt ORDER BY position DESC LIMIT ?1)) ORDER BY position DESC LIMIT 1 OFFSET ?1 - 1", int64(limit))
		if err != nil {
			return err
		}
		if at != 0 {
			after = relay.Position(at) - 1
		}
		list, err = x.events(after, limit)
		return err
	})
	return list, err
}

// newestPushes is how many rows of push NewestPushes looks at.
const newestPushes = 50

// Pushes reads the notes that messages were written to sockets, from the rows after a position,
// which is none of the shared order; up to about limit of them. next is where to go on.
func (i *Inspector) Pushes(after relay.Position, limit int) (list []inspect.Event, next relay.Position, err error) {
	next = after
	err = i.view(func(x *rx) error {
		r := x.c.Query("SELECT position, notes FROM push WHERE position > ? ORDER BY position", int64(after))
		list, next, err = x.pushEvents(r, after, limit)
		return err
	})
	return list, next, err
}

// NewestPushes reads the newest of what Pushes reads, up to limit, and where it ends.
func (i *Inspector) NewestPushes(limit int) (list []inspect.Event, next relay.Position, err error) {
	err = i.view(func(x *rx) error {
		r := x.c.Query("SELECT position, notes FROM (SELECT position, notes FROM push ORDER BY position DESC LIMIT ?) ORDER BY position", int64(newestPushes))
		list, next, err = x.pushEvents(r, 0, limit)
		return err
	})
	return list, next, err
}

// pushEvents makes events of the last limit notes of some rows. Notes of messages that were
// removed are left out.
func (x *rx) pushEvents(r *sqlite.Rows, after relay.Position, limit int) (list []inspect.Event, next relay.Position, err error) {
	var notes []pushed
	for next = after; r.Next() && len(notes) < limit*newestPushes; {
		next = relay.Position(r.Int(0))
		if err := unpackPushes(r.Blob(1), next, func(p pushed) { notes = append(notes, p) }); err != nil {
			r.Close()
			return nil, next, err
		}
	}
	if err := r.Close(); err != nil {
		return nil, next, err
	}
	for _, p := range notes[max(0, len(notes)-limit):] {
		m, err := x.message(p.message)
		if err != nil || m == nil {
			if err != nil {
				return nil, next, err
			}
			continue
		}
		e := inspect.Event{Position: p.message, Message: m, Step: inspect.Step{At: relay.UnixMilli(p.at), What: inspect.StepPushed}}
		if err := x.nameKey(&e.Step, p.key); err != nil {
			return nil, next, err
		}
		list = append(list, e)
	}
	return list, next, nil
}

// Why tells the life of a message as Trace does, but looks for the pushes only as far as a
// server does for one trace. Errors: MessageNotFound, and that of ctx.
func (i *Inspector) Why(ctx context.Context, id relay.MessageID) (*inspect.Trace, error) {
	return i.traceUpto(ctx, id, pushRows)
}

// Answers lists the first messages that name a message as the one that they answer. Error:
// MessageNotFound.
func (i *Inspector) Answers(id relay.MessageID, limit int) (list []*relay.Message, err error) {
	err = i.view(func(x *rx) error {
		m, err := x.messageByID(id)
		if err != nil {
			return err
		}
		list, _, err = x.readMessages(limit, "SELECT "+messageColumns+" FROM "+messageTables+" WHERE m.in_reply_to = ? ORDER BY m.position", []any{int64(m.Position)})
		return err
	})
	return list, err
}

// FileState looks at the file.
func (i *Inspector) FileState() (s inspect.FileState, err error) {
	s.Path, s.Log, s.DiskFree = i.path, sqlite.LogSize(i.path), -1
	if info, err := os.Stat(i.path); err == nil {
		s.File = info.Size()
	}
	if free, err := sqlite.FreeDisk(filepath.Dir(i.path)); err == nil {
		s.DiskFree = free
	}
	err = i.view(func(x *rx) error {
		var free, size, version, first, last, receipt, act, unindexed int64
		for _, n := range []struct {
			to    *int64
			query string
		}{
			{&free, "PRAGMA freelist_count"}, {&size, "PRAGMA page_size"}, {&version, "PRAGMA user_version"},
			{&first, "SELECT min(position) FROM message"}, {&last, "SELECT max(position) FROM message"}, {&receipt, "SELECT max(position) FROM receipt"},
			{&act, "SELECT at FROM audit ORDER BY id DESC LIMIT 1"},
		} {
			if _, err := x.c.Row(func(r *sqlite.Rows) { *n.to = r.Int(0) }, n.query); err != nil {
				return err
			}
		}
		upto, err := x.indexedUpto()
		if err != nil {
			return err
		}
		_, err = x.c.Row(func(r *sqlite.Rows) { unindexed = r.Int(0) }, "SELECT count(*) FROM (SELECT 1 FROM message m WHERE position > ? AND NOT EXISTS ("+file.IndexedAsReceived+") LIMIT ?)", int64(upto), int64(inspect.MostCounted))
		s.Free, s.SchemaVersion, s.Unindexed, s.LastEvent, s.LastAct = free*size, int(version), int(unindexed), relay.Position(max(last, receipt)), relay.UnixMilli(act)
		if last != 0 {
			s.First, s.Last = relay.Position(first).Time(), relay.Position(last).Time()
		}
		return err
	})
	return s, err
}
