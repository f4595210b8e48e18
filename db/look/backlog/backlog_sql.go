// Package backlog counts the work that a relay has not done yet: the unacknowledged messages of all
// Mechas, by age, and the age of the oldest change to the directory that is missing from the search
// index. It also measures the store's disk space (space.go).
//
// It reads the file while a server runs, by a look.Inspector, in many short views: so a count is not
// of a single moment, and blocks no one. Rings show the counts (cmd/metrics, cmd/console); the core
// does not need them. The server indexes messages behind (package mailbox), so the newest ones are
// counted in the table of messages, all others in the mailbox tables.
package backlog

import (
	"context"
	"slices"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/look"
	"relay/db/relay"
)

// Ages are the ages by which CountPending counts, the least first. The query countReceived has a
// column for each.
var Ages = []time.Duration{0, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// Pending counts the pending messages of all Mechas.
type Pending struct {
	Older  []int         // how many are at least as old as each of Ages
	Oldest time.Duration // the age of the oldest, or 0
}

// These are variables, so that tests can have many views of few messages.
var (
	pendingRows  = 20_000 // rows that are counted in one view, since the server's log grows meanwhile
	pendingMecha = 500    // Mechas in one view
)

// CountPending counts the pending messages by their present age. It reads a row for each, ten
// million a second at best, and pauses between the views. The end of ctx ends it between two
// views.
func CountPending(ctx context.Context, i *look.Inspector, now time.Time) (Pending, error) {
	c := &pendingCount{bounds: make([]relay.Position, len(Ages)), older: make([]int, len(Ages)),
		oldest: relay.MaxPosition}
	for i, age := range Ages {
		c.bounds[i] = relay.PositionAt(now.Add(-age))
	}
	c.bounds[0] = relay.MaxPosition // including messages of a clock that was ahead
	var upto relay.Position         // by now the mailboxes may also have rows of messages that are already counted
	err := i.Scan(ctx, func(x *engine.Rx) (err error) {
		upto, err = mailbox.IndexedUpto(x)
		return err
	})
	for from := upto; err == nil && from >= 0; {
		err = i.Scan(ctx, func(x *engine.Rx) (err error) {
			from, err = c.addUnindexed(x, from)
			return err
		})
	}
	for at := (names.Row{}); err == nil && at.Of >= 0; {
		err = i.Scan(ctx, func(x *engine.Rx) (err error) {
			at, err = c.addIndexed(x, at, upto)
			return err
		})
	}
	if err != nil {
		return Pending{}, err
	}
	p := Pending{Older: c.older}
	if c.oldest != relay.MaxPosition {
		p.Oldest = max(now.Sub(c.oldest.Time()), time.Millisecond)
	}
	return p, nil
}

// pendingCount is a running CountPending.
type pendingCount struct {
	bounds []relay.Position // the newest position of each age
	older  []int
	oldest relay.Position
}

// addUnindexed counts messages after a position, and returns the position that it has reached,
// or a negative one at the end.
func (c *pendingCount) addUnindexed(x *engine.Rx, after relay.Position) (relay.Position, error) {
	var list []relay.Position // in order
	r := x.C.Query("SELECT position FROM message WHERE position > ? AND open = 1 ORDER BY position LIMIT ?",
		int64(after), int64(pendingRows))
	for r.Next() {
		list = append(list, relay.Position(r.Int(0)))
	}
	if err := r.Close(); err != nil || len(list) == 0 {
		return -1, err
	}
	c.oldest = min(c.oldest, list[0])
	for i, bound := range c.bounds {
		n, _ := slices.BinarySearch(list, bound+1)
		c.older[i] += n
	}
	if len(list) < pendingRows {
		return -1, nil
	}
	return list[len(list)-1], nil
}

const countReceived = `SELECT count(*), count(*) FILTER (WHERE position <= ?5),
	count(*) FILTER (WHERE position <= ?6), count(*) FILTER (WHERE position <= ?7),
	count(*) FILTER (WHERE position <= ?8), count(*) FILTER (WHERE position <= ?9), min(position), max(position)
	FROM (SELECT position FROM received WHERE mecha = ?1 AND open = 1 AND position > ?2 AND position <= ?3
		ORDER BY position LIMIT ?4)`

// addIndexed counts rows of the table received, from the row after at on, and returns the
// row that it has reached, with a negative Mecha at the end.
func (c *pendingCount) addIndexed(x *engine.Rx, at names.Row, upto relay.Position) (names.Row, error) {
	for rows, mechas := 0, 0; rows < pendingRows && mechas < pendingMecha; mechas++ {
		if at.At == 0 { // the Mecha is done
			next, err := x.C.Number("SELECT coalesce(min(mecha), -1) FROM received WHERE mecha > ?", at.Of)
			if err != nil || next < 0 {
				return names.Row{Of: -1}, err
			}
			at.Of = next
		}
		args := []any{at.Of, int64(at.At), int64(upto), int64(pendingRows)}
		for _, b := range c.bounds[1:] {
			args = append(args, int64(b))
		}
		n := 0
		_, err := x.C.Row(func(r *sqlite.Rows) {
			n, at.At = int(r.Int(0)), relay.Position(r.Int(7))
			for i := range c.older {
				c.older[i] += int(r.Int(i))
			}
			if n > 0 {
				c.oldest = min(c.oldest, relay.Position(r.Int(6)))
			}
		}, countReceived, args...)
		if err != nil {
			return at, err
		}
		if rows += n; n < pendingRows {
			at.At = 0
		}
	}
	return at, nil
}

// IndexLag returns the age of the oldest change to the directory that the search index has not
// applied, or 0. revision is the last revision that it has applied.
func IndexLag(ctx context.Context, i *look.Inspector, revision int64, now time.Time) (time.Duration, error) {
	next, err := engine.Get(ctx, i.Point, func(x *engine.Rx) (int64, error) {
		return x.C.Number("SELECT min(revision) FROM mecha WHERE revision > ?", revision)
	})
	if err != nil || next == 0 {
		return 0, err
	}
	return max(now.Sub(relay.Position(next).Time()), 0), nil
}
