package engine

import (
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// The times of positions never decrease (PROTOCOL §1). So after the clock was ahead, the
// order's time stays constant until the clock has caught up, and until then the
// created_at of a message is later than its acceptance. The table clock_ahead notes,
// about once for each minute of such a time, which position a write got at which time of
// the clock. With it, "until" and the 24 hours of an Idempotency-Key follow the right
// clock.

const (
	minAhead       = time.Second // how far a position must be ahead of its write to be noted
	AheadEvery     = time.Minute // how far apart two notes are
	minLoggedAhead = time.Minute // how far the order must be ahead of the clock for a line in the log
)

// aheadOf notes that a write got a position whose time is ahead of the write's time.
func (t *Tx) aheadOf(p relay.Position, at time.Time) {
	if t.ahead.position == 0 && p.Time().Sub(at) >= minAhead {
		t.ahead = aheadRow{p, at}
	}
}

// aheadRow is a row of clock_ahead.
type aheadRow struct {
	position relay.Position
	at       time.Time
}

// keepAhead writes the row of the job that was just applied, unless the last row is less
// than AheadEvery before it.
func (t *Tx) keepAhead() error {
	row := t.ahead
	t.ahead = aheadRow{}
	if row.position == 0 {
		return nil
	}
	last, ok, err := lastAhead(&t.Rx, "", row.position)
	if err != nil || ok && row.at.Sub(last.at).Abs() < AheadEvery &&
		row.position.Time().Sub(last.position.Time()) < AheadEvery {
		return err
	}
	return t.C.Exec("INSERT INTO clock_ahead (position, at) VALUES (?, ?)", int64(row.position), row.at.UnixMilli())
}

// lastAhead returns the last row up to a position that meets a condition, if there is one.
func lastAhead(x *Rx, condition string, upto relay.Position, args ...any) (row aheadRow, ok bool, err error) {
	ok, err = x.C.Row(func(r *sqlite.Rows) { row = aheadRow{relay.Position(r.Int(0)), relay.UnixMilli(r.Int(1))} },
		"SELECT position, at FROM clock_ahead WHERE position <= ? "+condition+" ORDER BY position DESC LIMIT 1",
		append([]any{int64(upto)}, args...)...)
	return row, ok, err
}

// UntilPosition returns a position such that every message that was created, or accepted,
// before a time comes before it. After the clock was ahead, messages of up to a minute more
// may come before it, too.
func UntilPosition(x *Rx, until time.Time) (relay.Position, error) {
	to := relay.PositionFrom(until)
	row, ok, err := lastAhead(x, "AND position >= ? AND at < ?", relay.MaxPosition, int64(to), until.UnixMilli())
	if err != nil || !ok {
		return to, err
	}
	end := relay.PositionFrom(row.position.Time().Add(AheadEvery))
	next, err := x.C.Number("SELECT min(position) FROM clock_ahead WHERE position > ?", int64(row.position))
	if err == nil && next != 0 {
		end = min(end, relay.Position(next))
	}
	return max(to, end), err
}

// Accepted returns the time at which the write of a position was accepted, or a time up to a
// minute later. That is the position's own time, unless the clock had been ahead before.
func Accepted(x *Rx, p relay.Position) (time.Time, error) {
	row, ok, err := lastAhead(x, "", p)
	if err != nil || !ok || p.Time().Sub(row.position.Time()) >= AheadEvery {
		return p.Time(), err
	}
	if at := row.at.Add(AheadEvery); at.Before(p.Time()) {
		return at, nil
	}
	return p.Time(), nil
}

// logAhead logs that the order's time is ahead of the clock, and when the clock has
// caught up.
func (w *Store) logAhead() {
	ahead := w.Last.Time().Sub(w.Opts.Now())
	switch {
	case ahead > minLoggedAhead && !w.aheadLogged:
		w.aheadLogged = true
		w.Opts.Logger.Warn("the clock is behind the newest message: created_at stands still until the clock has caught up",
			"behind", ahead.Round(time.Second), "until", relay.FormatTime(w.Last.Time()))
	case ahead <= 0 && w.aheadLogged:
		w.aheadLogged = false
		w.Opts.Logger.Info("the clock has caught up with the newest message: created_at advances again")
	}
}
