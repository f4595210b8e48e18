package replication

import (
	"context"
	"errors"
	"time"
)

// A Log is an order of writes that several nodes share: each has a copy of the store, and
// follows the log. A write goes this way. The node that accepted it proposes it (Proposer):
// it appends an envelope of writes to the log. Each node, this one too, gets the entries in
// the log's order and applies them (Follower). The accepting node then returns the outcome
// to the client. So a node decides nothing alone: the same entries make the same store, down
// to each position, whatever the clocks, restarts and transactions of the nodes are. The
// time of an entry is the log's time, and its writes are evaluated at it.
//
// Without a Log the file is its own log: the writer takes the writes from its queue.
//
// A Log is safe for concurrent use: one call of Append and one of Follow run at a time.
type Log interface {
	// Append adds an envelope to the end of the log, and returns nil once the log will not
	// lose it. After an error it is unknown whether the log has the envelope: the store
	// then calls Append again with the same arguments, until it meets the envelope among the
	// entries, or for half a minute. id is different for each envelope: a log that knows that
	// it has the envelope need not add it again. If it does, the second one has no effect.
	// Append returns soon after ctx has ended, and keeps no reference to envelope.
	Append(ctx context.Context, id string, envelope []byte) error

	// Follow calls deliver with the entries after the one of a number, in order and without a
	// gap, those of the past and then each new one, until ctx ends, deliver returns an error,
	// or it cannot continue. One call of deliver runs at a time, and none once Follow has
	// returned. The entries belong to deliver. The store calls Follow again after errors
	// other than these two: ErrLogTruncated, if the log no longer has the entry behind after;
	// ErrLogBehind, if it ends before the entry after.
	Follow(ctx context.Context, after uint64, deliver func([]Entry) error) error
}

// A Entry is an envelope in its place.
type Entry struct {
	Number uint64    // 1 for the first entry, one more for each further one
	At     time.Time // when the log took it. It may fall: the store then uses the time of the entry before
	Data   []byte
}

// The errors of Follow after which this copy cannot continue.
var (
	ErrLogTruncated = errors.New("the log no longer has the entries that this copy needs: " +
		"begin again with a copy of the file of another node")
	ErrLogBehind = errors.New("the log ends before the last entry that this copy has: " +
		"it is another log, or has lost entries")
)

// ErrOtherLog stops a copy before it applies an entry that was not made for its log.
var ErrOtherLog = errors.New("it is of another log than the one that this copy follows: give this copy its own log, " +
	"or begin again with a copy of the file of a node of this log")
