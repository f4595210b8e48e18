package db

import (
	"context"
	"errors"
	"time"

	"relay/db/relay"
)

// A Log is an order of writes that several nodes share: each has a copy of the store, and
// follows the log. A write goes this way. The node that accepted it proposes it (propose.go):
// it appends an envelope of writes to the log. Each node, this one too, gets the entries
// in the log's order and applies them (follow.go). The accepting node then gives the
// outcome to the client. So a node decides nothing by itself: the same entries make the
// same store, down to each position, whatever the clocks, restarts and transactions of the
// nodes are. The time of an entry is that of the log, and its writes are judged by it.
//
// Without a Log the file is its own log: the writer takes the writes from its queue.
//
// A Log is safe for concurrent use: there is one call of Append at a time, and one of Follow
// beside it.
type Log interface {
	// Append adds an envelope to the end of the log, and returns nil once the log will not
	// lose it. After an error it is unknown whether the log has the envelope: the store
	// then calls Append again with the same arguments, until it meets the envelope among the
	// entries, or for half a minute. id is different for each envelope: a log that knows that
	// it has the envelope need not add it again. If it does, the second one has no effect.
	// Append returns soon after ctx has ended, and keeps no reference to envelope.
	Append(ctx context.Context, id string, envelope []byte) error

	// Follow calls deliver with the entries after the one of a number, in order and without
	// a gap, those of the past and then each new one, until ctx ends, deliver returns an error,
	// or it cannot go on. One call of deliver is under way at a time, and none once Follow has
	// returned. The entries belong to deliver. The store calls Follow again after
	// errors other than these two: ErrLogTruncated, if the log no longer has the entry
	// behind after; ErrLogBehind, if it ends before the entry after.
	Follow(ctx context.Context, after uint64, deliver func([]LogEntry) error) error
}

// A LogEntry is an envelope in its place.
type LogEntry struct {
	Number uint64    // 1 for the first entry, one more for each further one
	At     time.Time // when the log took it. It may fall: the store then goes on with the time of the entry before
	Data   []byte
}

// The errors of Follow after which this copy cannot go on.
var (
	ErrLogTruncated = errors.New("the log no longer has the entries that this copy needs: begin again with a copy of the file of another node")
	ErrLogBehind    = errors.New("the log ends before the last entry that this copy has: it is another log, or has lost entries")
)

// errOtherLog stops a copy before it applies an entry that was not made for its log.
var errOtherLog = errors.New("it is of another log than the one that this copy follows: give this copy its own log, or begin again with a copy of the file of a node of this log")

// A sharedLog is where the writes of this process go in the place of the writer's queue. The
// writer without one is its own log.
type sharedLog interface {
	// Enqueue takes the job of a write. Safe for concurrent use.
	Enqueue(j job, of relay.MechaNumber)
	// Take returns the ops of the entries that are to be applied next; none if there are none,
	// or if this machine cannot apply them for now. Apply makes a transaction of them. Only the
	// writer's goroutine may call both.
	Take() []op
	Apply([]op)
	// Keeps reports whether this node makes the store's own writes, such as the expiry of
	// messages. Several nodes may do so at the same time: the second such write finds nothing
	// to do.
	Keeps() bool
	// Time returns the log's time, in Unix ms: that of the last entry that was applied.
	Time() int64
	// Used reports whether a write in the log had a nonce.
	Used(relay.NonceHash) bool
	// Waiting returns how many writes wait to be in the log, and the time of the oldest; zero
	// if none does. Safe for concurrent use.
	Waiting() (n int, oldest time.Time)
	// Await waits until this copy has applied the log up to a position that an answer of some
	// node has shown. Errors: NotCurrent, ShuttingDown, and that of ctx. Safe for concurrent use.
	Await(ctx context.Context, p relay.Position) error
	// Applied returns the number of the last entry whose writes are committed. Safe for
	// concurrent use.
	Applied() uint64
	// Start starts the goroutines of the log. Stop proposes what waits, waits a moment for the
	// outcomes, and then follows the log no more. The writer must be running.
	Start()
	Stop()
	// Close closes what opening has opened, if Stop has not. It may be called again.
	Close()
}

// keeps reports whether this process makes the store's own writes.
func (w *writer) keeps() bool { return w.log == nil || w.log.Keeps() }

// proposes hands a job of the store's own work to the log, and returns true, if the job is a
// write and there is a log. Only the writer's goroutine may call it.
func (w *writer) proposes(j job) bool {
	if w.log == nil || j.shared() == nil {
		return false
	}
	w.log.Enqueue(j, 0)
	return true
}

func errNonceReused() error {
	return relay.Errorf(relay.NonceReused, "this nonce was used before with this key; every request needs a fresh one")
}
