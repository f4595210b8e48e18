package engine

import (
	"time"

	"relay/db/relay"
	"relay/db/turn"
)

const (
	MaxQueue      = 16 << 10 // jobs that wait
	MaxBatch      = 512      // jobs in a transaction that takes all waiting jobs
	MaxBatchBytes = 8 << 20  // bytes of the jobs in such a transaction
	CutBatch      = 128      // jobs in a transaction that leaves some waiting; it is short, because they wait for its end
	cutBytes      = 2 << 20  // bytes of the jobs in such a transaction; a single job may have more
)

// Queue holds the jobs that wait for the writer, or for the log of a cluster.
type Queue = turn.Queue[relay.MechaNumber, QueuedJob]

// NewQueue returns a queue from which a transaction takes up to limit jobs, of up to room bytes.
func NewQueue(limit, room int) Queue {
	return turn.NewQueue[relay.MechaNumber, QueuedJob](MaxQueue, turn.Batch{Items: limit, Bytes: room},
		turn.Batch{Items: CutBatch, Bytes: cutBytes}, errTooManyWrites)
}

// errTooManyWrites refuses a write if its Mecha has its share of the places, or if no
// place is free.
func errTooManyWrites(own int) error {
	e := relay.Errorf(relay.Overloaded, "too many writes are waiting")
	if own > 0 {
		e = relay.Errorf(relay.RateLimited, "%d writes of this Mecha are waiting, which is its share", own)
	}
	e.RetryAfter = time.Second
	return e
}
