package messages

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Attempt is a row of the table attempt.
type Attempt struct {
	Number int             // 1 for the first
	Until  time.Time       // the end of the lease or the deferral; zero if the message is free
	Key    relay.KeyNumber // who has the lease, or 0
	Worker string          // likewise
	Lease  time.Duration   // likewise
	Since  relay.Position  // the receipt of the latest change of this row
	Again  relay.Position  // where the latest deferral ended; 0 without a deferral
}

// AttemptOf reads the row of a message. Without a row, only the attempt's number is set.
func AttemptOf(x *engine.Rx, p relay.Position) (a Attempt, err error) {
	a.Number = 1
	_, err = x.C.Row(func(r *sqlite.Rows) {
		a = Attempt{Number: int(r.Int(0)), Until: relay.UnixMilli(r.Int(1)), Key: relay.KeyNumber(r.Int(2)),
			Worker: r.Text(3), Lease: time.Duration(r.Int(4)) * time.Millisecond, Since: relay.Position(r.Int(5)),
			Again: relay.Position(r.Int(6))}
	}, "SELECT number, until, key, worker, lease, since, again FROM attempt WHERE message = ?", int64(p))
	return a, err
}
