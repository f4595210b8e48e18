package survey

import (
	"cmp"
	"context"
	"slices"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/internal/progress"
	"relay/db/internal/sqlite"
	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/relay"
)

// Activity counts what happened after a position, in spans of the given length. It reads up to
// limit rows of messages and of receipts.
func (i Inspector) Activity(after relay.Position, span time.Duration, limit int) (Activity, error) {
	return look.See(i, func(x *engine.Rx) (Activity, error) { return activity(x, after, span, limit) })
}

// The events of one span. A receipt has the position of its message, so the time between them needs
// no other table. There is one query for each span, since SQLite would sort all rows to group them.
const (
	spanSent    = "SELECT count(*) FROM message WHERE position > ? AND position <= ?"
	spanSettled = `SELECT count(*), count(*) FILTER (WHERE state = 2 AND status IS NOT NULL AND notice IS NULL),
		count(*) FILTER (WHERE state = 2 AND status IN failedWords),
		count(*) FILTER (WHERE state = 3 AND notice IS NULL),
		sum((position >> 12) - (message >> 12)) FILTER (WHERE state = 2 AND status IS NOT NULL AND notice IS NULL),
		max((position >> 12) - (message >> 12)) FILTER (WHERE state = 2 AND status IS NOT NULL AND notice IS NULL)
		FROM receipt WHERE position > ? AND position <= ?`
	nextMessage = "SELECT min(position) FROM message WHERE position > ? AND position <= ?"
	nextReceipt = "SELECT min(position) FROM receipt WHERE position > ? AND position <= ?"
)

// inSpans reads, by one of these queries, the events after a position and up to another, in spans of the
// given length: f gets the number since 1970 of each span with events, and its row.
func inSpans(
	x *engine.Rx, after, upto relay.Position, span time.Duration, next, query string, f func(n int64, r *sqlite.Rows),
) error {
	for {
		first, err := x.C.Number(next, int64(after), int64(upto))
		if err != nil || first == 0 {
			return err
		}
		n := relay.Position(first).Time().UnixMilli() / span.Milliseconds()
		end := min(relay.PositionAt(time.UnixMilli((n+1)*span.Milliseconds()))-1, upto)
		if _, err := x.C.Row(func(r *sqlite.Rows) { f(n, r) }, query, int64(after), int64(end)); err != nil {
			return err
		}
		after = end
	}
}

func activity(x *engine.Rx, after relay.Position, span time.Duration, limit int) (a Activity, err error) {
	a.Upto = relay.MaxPosition
	last := after
	for _, table := range []string{"message", "receipt"} {
		full, err := x.C.Number("SELECT position FROM "+table+" WHERE position > ? ORDER BY position LIMIT 1 OFFSET ?",
			int64(after), int64(limit-1))
		if err != nil {
			return a, err
		}
		if full != 0 {
			a.Upto, a.More = min(a.Upto, relay.Position(full)), true
			continue
		}
		newest, err := x.C.Number("SELECT max(position) FROM " + table)
		if err != nil {
			return a, err
		}
		last = max(last, relay.Position(newest))
	}
	if !a.More {
		a.Upto = last
	}
	spans := map[int64]*Span{}
	at := func(n int64) *Span {
		if spans[n] == nil {
			spans[n] = &Span{Begin: time.UnixMilli(n * span.Milliseconds())}
		}
		return spans[n]
	}
	err = inSpans(x, after, a.Upto, span, nextMessage, spanSent, func(n int64, r *sqlite.Rows) {
		at(n).Add(Span{Events: int(r.Int(0)), Sent: int(r.Int(0))})
	})
	settled, failed := messages.WithFailed(x, spanSettled)
	if err = cmp.Or(err, failed); err == nil {
		err = inSpans(x, after, a.Upto, span, nextReceipt, settled, func(n int64, r *sqlite.Rows) {
			at(n).Add(Span{Events: int(r.Int(0)), Acked: int(r.Int(1)), Failed: int(r.Int(2)), Expired: int(r.Int(3)),
				Lag: time.Duration(r.Int(4)) * time.Millisecond, MaxLag: time.Duration(r.Int(5)) * time.Millisecond})
		})
	}
	if err != nil {
		return a, err
	}
	for _, s := range spans {
		a.Spans = append(a.Spans, *s)
	}
	slices.SortFunc(a.Spans, func(a, b Span) int { return a.Begin.Compare(b.Begin) })
	return a, nil
}

// Back returns the position after which there are up to limit messages, and up to limit
// receipts, none of them earlier than since.
func (i Inspector) Back(since time.Time, limit int) (relay.Position, error) {
	return look.See(i, func(x *engine.Rx) (relay.Position, error) {
		p := relay.PositionFrom(since)
		for _, table := range []string{"message", "receipt"} {
			at, err := x.C.Number("SELECT position FROM "+table+" WHERE position > ? ORDER BY position DESC LIMIT 1 OFFSET ?",
				int64(p), int64(limit))
			if err != nil {
				return p, err
			}
			p = max(p, relay.Position(at))
		}
		return p, nil
	})
}

// newestPosition is the position of the ?1-th newest row of messages and receipts.
const newestPosition = `SELECT position FROM (SELECT * FROM (SELECT position FROM message ORDER BY position
	DESC LIMIT ?1) UNION ALL SELECT * FROM (SELECT position FROM receipt ORDER BY position DESC LIMIT ?1))
	ORDER BY position DESC LIMIT 1 OFFSET ?1 - 1`

// Newest reads the newest events, up to limit, the oldest first.
func (i Inspector) Newest(limit int) ([]browse.Event, error) {
	return look.See(i, func(x *engine.Rx) ([]browse.Event, error) {
		// Each table has at most limit of the newest events, and none before the limit-th newest of both.
		at, err := x.C.Number(newestPosition, int64(limit))
		if err != nil {
			return nil, err
		}
		return browse.Events(x, relay.Position(at)-1, limit)
	})
}

// deadRows is how many of the newest receipts Dead reads.
const deadRows = 50_000

const deadSince = `SELECT position, message FROM (SELECT position, message, state, status, notice FROM receipt
	WHERE position > ? ORDER BY position DESC LIMIT ?)
	WHERE state = 3 AND notice IS NULL OR state = 2 AND notice IS NULL AND status IN failedWords LIMIT ?`

// Dead reads the newest events since a time by which messages expired, or were acknowledged as
// failed or rejected, the newest first, up to limit. It reads the newest 50,000 receipts.
func (i Inspector) Dead(since time.Time, limit int) ([]browse.Event, error) {
	return look.See(i, func(x *engine.Rx) ([]browse.Event, error) {
		text, err := messages.WithFailed(x, deadSince)
		if err != nil {
			return nil, err
		}
		return browse.ReceiptEvents(x, x.C.Query(text, int64(relay.PositionFrom(since)), int64(deadRows), int64(limit)))
	})
}

// newestPushes is how many rows of push NewestPushes reads.
const newestPushes = 50

const (
	pushesAfter = "SELECT position, notes FROM push WHERE position > ? ORDER BY position"
	lastPushes  = "SELECT position, notes FROM (SELECT position, notes FROM push ORDER BY position DESC LIMIT ?) " +
		"ORDER BY position"
)

// Pushes reads the notes that messages were written to sockets, from up to about limit rows
// after a position, which is not in the shared order. next is where to continue.
func (i Inspector) Pushes(after relay.Position, limit int) (list []browse.Event, next relay.Position, err error) {
	err = i.Point(context.Background(), func(x *engine.Rx) error {
		list, next, err = pushEvents(x, x.C.Query(pushesAfter, int64(after)), after, limit)
		return err
	})
	return list, next, err
}

// NewestPushes reads the newest pushes, up to limit, and the position where Pushes continues.
func (i Inspector) NewestPushes(limit int) (list []browse.Event, next relay.Position, err error) {
	err = i.Point(context.Background(), func(x *engine.Rx) error {
		list, next, err = pushEvents(x, x.C.Query(lastPushes, int64(newestPushes)), 0, limit)
		return err
	})
	return list, next, err
}

// pushEvents makes events of the last limit notes of some rows. It leaves out notes of
// removed messages.
func pushEvents(
	x *engine.Rx, r *sqlite.Rows, after relay.Position, limit int,
) (list []browse.Event, next relay.Position, err error) {
	var notes []progress.Pushed
	last, _, err := progress.ReadPushes(r, limit*newestPushes, func(p progress.Pushed) { notes = append(notes, p) })
	if next = max(after, last); err != nil {
		return nil, next, err
	}
	for _, p := range notes[max(0, len(notes)-limit):] {
		m, err := messages.At(x, p.Message)
		if err != nil || m == nil {
			if err != nil {
				return nil, next, err
			}
			continue
		}
		e := browse.Event{Position: p.Message, Message: m, Step: look.Step{At: relay.UnixMilli(p.At), What: look.StepPushed}}
		if err := look.NameKey(x, &e.Step, p.Key); err != nil {
			return nil, next, err
		}
		list = append(list, e)
	}
	return list, next, nil
}
