package db

import (
	"context"
	"slices"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// PendingAges are the ages by which CountPending counts, the least first. The query
// countReceived has a column for each.
var PendingAges = []time.Duration{0, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// Pending counts the pending messages of all Mechas.
type Pending struct {
	Older  []int         // how many are at least as old as each of PendingAges
	Oldest time.Duration // the age of the oldest; 0: none is pending
}

const (
	pendingRows  = 20_000 // rows that are counted in one view, because other scans wait for it
	pendingMecha = 500    // Mechas in one view
)

// CountPending counts the pending messages by their age. It reads a row for each, ten
// million a second at best, in several views; so the result is of no single moment. The
// end of ctx ends it between two views. Safe for concurrent use.
func (d *DB) CountPending(ctx context.Context) (Pending, error) {
	now := d.w.Opts.Now()
	c := &pendingCount{bounds: make([]relay.Position, len(PendingAges)), older: make([]int, len(PendingAges)),
		oldest: relay.MaxPosition}
	for i, age := range PendingAges {
		c.bounds[i] = relay.PositionAt(now.Add(-age))
	}
	c.bounds[0] = relay.MaxPosition // also what the clock was ahead for
	// The tables may have further rows after upto, of messages that are counted here.
	upto := d.w.Lookups.Late.Lists(names.InPending, c.addSorted)
	for at := (names.Row{}); at.Of >= 0; {
		err := d.w.As(0).Scan(ctx, func(x *engine.Rx) (err error) {
			at, err = c.addIndexed(x, at, upto)
			return err
		})
		if err != nil {
			return Pending{}, err
		}
	}
	p := Pending{Older: c.older}
	if c.oldest != relay.MaxPosition {
		p.Oldest = max(now.Sub(c.oldest.Time()), time.Millisecond)
	}
	return p, nil
}

// pendingCount is a CountPending under way.
type pendingCount struct {
	bounds []relay.Position // the newest position of each age
	older  []int
	oldest relay.Position
}

// addSorted counts messages that stand in their order.
func (c *pendingCount) addSorted(list []relay.Position) {
	if len(list) == 0 {
		return
	}
	c.oldest = min(c.oldest, list[0])
	for i, bound := range c.bounds {
		if list[0] > bound {
			return // the further bounds are earlier
		}
		n, _ := slices.BinarySearch(list, bound+1)
		c.older[i] += n
	}
}

const countReceived = `SELECT count(*), count(*) FILTER (WHERE position <= ?5), count(*) FILTER (WHERE position <= ?6), count(*) FILTER (WHERE position <= ?7),
	count(*) FILTER (WHERE position <= ?8), count(*) FILTER (WHERE position <= ?9), min(position), max(position)
	FROM (SELECT position FROM received WHERE mecha = ?1 AND open = 1 AND position > ?2 AND position <= ?3 ORDER BY position LIMIT ?4)`

// addIndexed counts rows of the table received, from the row after at on, and gives the
// row that it has reached; its Mecha is negative at the end.
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

// IndexLag tells for how long the search index has lacked the oldest change to the
// directory that it has not applied; 0 if it has applied all. revision is the last one
// that it has applied. Safe for concurrent use.
func (d *DB) IndexLag(ctx context.Context, revision int64) (time.Duration, error) {
	next, err := engine.Get(ctx, d.w.As(0).Point, func(x *engine.Rx) (int64, error) {
		return x.C.Number("SELECT min(revision) FROM mecha WHERE revision > ?", revision)
	})
	if err != nil || next == 0 {
		return 0, err
	}
	return max(d.w.Opts.Now().Sub(relay.Position(next).Time()), 0), nil
}
