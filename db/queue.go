package db

import (
	"time"

	"relay/db/relay"
)

const (
	maxQueue      = 16 << 10 // jobs that wait
	maxBatch      = 512      // jobs in a transaction that takes all that wait
	maxBatchBytes = 8 << 20  // bytes of the jobs in such a transaction
	cutBatch      = 128      // jobs in a transaction that leaves some waiting; it is short, because they wait for its end
	cutBytes      = 2 << 20  // bytes of the jobs in such a transaction; a single job may have more
)

// queue has the jobs that wait for the writer, or for the log of several nodes, in the order in which they came. Usually
// the next transaction takes them all. If they are too many for one, the Mechas take
// turns: the transaction gets the first job of each, then the second of each, and so on.
// So a Mecha with one job waits for one transaction, however many jobs others have. The
// jobs of one Mecha keep their order. Make a queue with newQueue; writer.mu guards it.
type queue struct {
	most  int // jobs in a transaction that takes all that wait
	room  int // bytes of the jobs in such a transaction
	ops   []op
	bytes int                       // of all ops
	of    map[relay.MechaNumber]int // how many of ops each Mecha has
	spare []op                      // the array of the next ops or of the next batch
	turns []int                     // for each op, while a batch is chosen: how many ops of its Mecha are before it
}

func newQueue(most, room int) queue {
	return queue{most: most, room: room, of: map[relay.MechaNumber]int{}}
}

// add adds a job of a Mecha; 0 is the relay itself. A Mecha may have as many jobs as
// there are free places. So one Mecha that floods the queue gets half of the places, two
// get a third each, and a place is always left for others. Errors: RateLimited for a Mecha
// that has its share; Overloaded, if no place is free.
func (q *queue) add(j job, of relay.MechaNumber) error {
	free := maxQueue - len(q.ops)
	switch own := q.of[of]; {
	case free <= 0:
		e := relay.Errorf(relay.Overloaded, "too many writes are waiting")
		e.RetryAfter = time.Second
		return e
	case of != 0 && own >= free:
		e := relay.Errorf(relay.RateLimited, "%d writes of this Mecha are waiting, which is its share", own)
		e.RetryAfter = time.Second
		return e
	}
	o := op{job: j, of: of, bytes: j.size()}
	q.ops = append(q.ops, o)
	q.bytes += o.bytes
	q.of[of]++
	return nil
}

// take takes the jobs of the next transaction. reuse must follow before the next take.
func (q *queue) take() []op {
	if len(q.ops) == 0 {
		return nil
	}
	var batch []op
	batch, q.spare = q.spare, nil
	if len(q.ops) <= q.most && q.bytes <= q.room {
		batch, q.ops = q.ops, batch
		q.bytes = 0
		clear(q.of)
		return batch
	}
	cut, room := min(q.most, cutBatch), min(q.room, cutBytes)
	last, count, bytes := q.findTurns(cut, room)
	rest := q.ops[:0]
	for i, o := range q.ops {
		fits := count < cut && bytes+o.bytes <= room || i == 0 // the oldest job is always taken, or a large one would never be
		switch {
		case q.turns[i] == last && fits:
			count, bytes = count+1, bytes+o.bytes
		case q.turns[i] >= last:
			rest = append(rest, o)
			continue
		}
		batch = append(batch, o)
		q.leaves(o)
	}
	clear(q.ops[len(rest):])
	q.ops = rest
	return batch
}

// findTurns sets turns. last is the first turn whose jobs do not all fit into a transaction
// of up to cut jobs and up to room bytes. count and bytes are the number and the size of the
// jobs in the turns before it.
func (q *queue) findTurns(cut, room int) (last, count, bytes int) {
	var ops, size [cutBatch]int // of each turn
	q.turns = q.turns[:0]
	before := make(map[relay.MechaNumber]int, len(q.of))
	for _, o := range q.ops {
		turn := before[o.of]
		before[o.of]++
		q.turns = append(q.turns, turn)
		if turn < cut {
			ops[turn]++
			size[turn] += o.bytes
		}
	}
	for last < cut && count+ops[last] <= cut && bytes+size[last] <= room {
		count, bytes, last = count+ops[last], bytes+size[last], last+1
	}
	return last, count, bytes
}

// remove takes the jobs out of the queue for which f returns true.
func (q *queue) remove(f func(op) bool) (removed []op) {
	rest := q.ops[:0]
	for _, o := range q.ops {
		if !f(o) {
			rest = append(rest, o)
			continue
		}
		removed = append(removed, o)
		q.leaves(o)
	}
	clear(q.ops[len(rest):])
	q.ops = rest
	return removed
}

// leaves counts a job no more.
func (q *queue) leaves(o op) {
	q.bytes -= o.bytes
	if q.of[o.of]--; q.of[o.of] == 0 {
		delete(q.of, o.of)
	}
}

// reuse takes back the array of a batch whose jobs are finished; nil if take gave none.
func (q *queue) reuse(batch []op) {
	if batch == nil {
		return // take has left the spare one
	}
	clear(batch)
	q.spare = batch[:0]
}
