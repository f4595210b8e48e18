package db

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// attempt is a row of the table of that name.
type attempt struct {
	number int             // 1 for the first
	until  time.Time       // the end of the lease, or of the deferral; zero: the message is free
	key    relay.KeyNumber // who has the lease; 0: nobody
	worker string          // likewise
	lease  time.Duration   // likewise
	since  relay.Position  // the receipt that made this row what it is
	again  relay.Position  // where the latest deferral was over; 0: there was none
}

// attemptOf reads the row of a message; the zero attempt but its number if there is none.
func attemptOf(x *engine.Rx, p relay.Position) (a attempt, err error) {
	a.number = 1
	_, err = x.C.Row(func(r *sqlite.Rows) {
		a = attempt{number: int(r.Int(0)), until: relay.UnixMilli(r.Int(1)), key: relay.KeyNumber(r.Int(2)), worker: r.Text(3),
			lease: time.Duration(r.Int(4)) * time.Millisecond, since: relay.Position(r.Int(5)), again: relay.Position(r.Int(6))}
	}, "SELECT number, until, key, worker, lease, since, again FROM attempt WHERE message = ?", int64(p))
	return a, err
}
