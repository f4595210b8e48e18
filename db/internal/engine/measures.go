package engine

import (
	"sync/atomic"
	"time"

	"relay/db/measure"
	"relay/db/relay"
)

// Measures counts what the store has done since it was opened. Only the store writes;
// anybody may read, at any time.
type Measures struct {
	Sent     atomic.Int64    // messages that were accepted
	ToCrews  atomic.Int64    // messages to a crew; Sent counts the messages to its Mechas
	Expired  atomic.Int64    // messages that expired
	Removed  atomic.Int64    // messages that were removed, for their age, after their expiry or by relay prune
	Acks     *measure.Counts // acknowledgements, by status; repeated ones are not counted
	Overdue  atomic.Int64    // messages that were not acknowledged by their AckBy
	Claimed  atomic.Int64    // messages that workers got by a claim
	Returned atomic.Int64    // messages that were redelivered, after a deferral or a lease
	Spent    atomic.Int64    // messages that the relay gave up after their last attempt
	Full     atomic.Int64    // conversations that had no room for a further message
	Failures atomic.Int64    // transactions that failed

	Writes *measure.Histogram // writes and local writes in a transaction
	Commit *measure.Histogram // a transaction, with the wait for the write lock of the file
	// Sync is SQLite's COMMIT of a transaction that changed something: it appends the
	// changed pages to the log and waits for one fsync.
	Sync *measure.Histogram
	// Queued is how long the oldest write of a transaction had waited: from its time,
	// which its request set, to the begin of the transaction.
	Queued *measure.Histogram

	// Reads that waited for their turn in a lane. A read that found a
	// connection at once is not counted.
	KeyWait, PointWait, ScanWait *measure.Histogram
}

// ackWords are the statuses that have counters of their own: those with a meaning
// (PROTOCOL §3, Ack). Every other status counts as measure.Other, because clients choose
// the statuses.
var ackWords = []string{"received", "processing", "deferred", "completed", "failed", "rejected"}

func newMeasures() *Measures {
	return &Measures{
		Acks:   measure.NewCounts(ackWords...),
		Writes: measure.NewSizes(), Commit: measure.NewDurations(), Sync: measure.NewDurations(),
		Queued:  measure.NewDurations(),
		KeyWait: measure.NewDurations(), PointWait: measure.NewDurations(), ScanWait: measure.NewDurations(),
	}
}

// began measures the writes of a transaction that begins now, by the store's clock.
func (m *Measures) began(jobs []QueuedJob, now time.Time) {
	m.Writes.ObserveSize(len(jobs))
	for i := range jobs {
		if w := jobs[i].Job.Shared(); w != nil {
			m.Queued.Observe(now.Sub(w.When()))
			return // the others came later
		}
	}
}

// Committed counts the messages and changes of a transaction.
func (m *Measures) Committed(t *Tx) {
	m.Sent.Add(int64(len(t.Brought.Messages)))
	for i := range t.Brought.Changes {
		switch c := &t.Brought.Changes[i]; {
		case !c.New:
		case c.Notice == relay.NoticeOverdue:
			m.Overdue.Add(1)
		case c.Notice == relay.NoticeFull:
			m.Full.Add(1)
		case c.Status != "":
			m.Acks.Add(c.Status)
		case c.Freed:
			m.Expired.Add(1)
		}
	}
}

// changes reports whether a transaction of these jobs changes something, so that its
// commit waits for the disk.
func changes(jobs []QueuedJob) bool {
	for i := range jobs {
		if jobs[i].Err == nil {
			return true
		}
	}
	return false
}
