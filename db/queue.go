package db

import (
	"time"

	"relay/db/relay"
	"relay/db/turn"
)

const (
	maxQueue      = 16 << 10 // jobs that wait
	maxBatch      = 512      // jobs in a transaction that takes all that wait
	maxBatchBytes = 8 << 20  // bytes of the jobs in such a transaction
	cutBatch      = 128      // jobs in a transaction that leaves some waiting; it is short, because they wait for its end
	cutBytes      = 2 << 20  // bytes of the jobs in such a transaction; a single job may have more
)

// queue has the jobs that wait for the writer, or for the log of several nodes.
type queue = turn.Queue[relay.MechaNumber, op]

// newQueue returns a queue of which a transaction takes up to most jobs, of up to room bytes.
func newQueue(most, room int) queue {
	return turn.NewQueue[relay.MechaNumber, op](maxQueue, turn.Batch{Items: most, Bytes: room}, turn.Batch{Items: cutBatch, Bytes: cutBytes}, errTooManyWrites)
}

// errTooManyWrites refuses a write of a Mecha that has its share of the places, or if no
// place is free.
func errTooManyWrites(own int) error {
	e := relay.Errorf(relay.Overloaded, "too many writes are waiting")
	if own > 0 {
		e = relay.Errorf(relay.RateLimited, "%d writes of this Mecha are waiting, which is its share", own)
	}
	e.RetryAfter = time.Second
	return e
}
