package engine

import (
	"time"

	"relay/db/relay"
	"relay/db/turn"
)

const (
	MaxQueue      = 16 << 10 // jobs that wait
	MaxBatch      = 512      // jobs in a transaction that takes all that wait
	MaxBatchBytes = 8 << 20  // bytes of the jobs in such a transaction
	CutBatch      = 128      // jobs in a transaction that leaves some waiting; it is short, because they wait for its end
	cutBytes      = 2 << 20  // bytes of the jobs in such a transaction; a single job may have more
)

// Queue has the jobs that wait for the writer, or for the log of several nodes.
type Queue = turn.Queue[relay.MechaNumber, Op]

// NewQueue returns a queue of which a transaction takes up to most jobs, of up to room bytes.
func NewQueue(most, room int) Queue {
	return turn.NewQueue[relay.MechaNumber,
		Op](MaxQueue, turn.Batch{Items: most, Bytes: room}, turn.Batch{Items: CutBatch, Bytes: cutBytes}, errTooManyWrites)
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
