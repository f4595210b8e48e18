package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"relay/db/admin"
	"relay/db/file"
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

// openLog finds the place of the file in the log of Options.Log, or makes the file the first
// copy. It refuses a file that does not fit the options.
func (d *DB) openLog() error {
	w := d.w
	at, follows, err := file.ReadReplica(w.c)
	switch {
	case err != nil:
		return err
	case d.opts.Log == nil && follows && !d.opts.Serve:
		w.admin = admin.NewClient(d.path, adminGreeting(d.ids))
		return nil
	case d.opts.Log == nil && follows:
		return fmt.Errorf("%s is one of several copies that follow a log, and this program was given no log: relay serve takes it by --cluster, commands work beside a server that runs, and relay cluster leave makes the file a plain one", d.path)
	case d.opts.Log == nil:
		return nil
	case !d.opts.Serve:
		return errors.New("only a server can follow a log")
	case follows && d.opts.FoundLog && at.Applied > 0: // without an entry, it is the second try to found the same log
		return fmt.Errorf("%s follows a log already", d.path)
	case follows && at.Version > newestRules:
		return fmt.Errorf("%s has entries that a newer relay has applied by other rules (%d; this one knows %d): use that one, or a newer one", d.path, at.Version, newestRules)
	case !follows && !d.opts.FoundLog:
		return fmt.Errorf("%s follows no log: begin with a copy of the file of a node that does", d.path)
	case !follows:
		if at, err = w.foundLog(); err != nil {
			return err
		}
	}
	if w.replica, err = newReplica(w, at); err != nil {
		return err
	}
	if err := w.leaveSyncs(); err != nil {
		return err
	}
	w.add(w.replica)
	w.add(&activation{w: w})
	w.propose = newProposer(w, d.opts.Log, at.Log)
	w.propose.fresh = d.opts.Fresh
	w.propose.rules = func() int64 { return w.replica.place.Load().Version }
	w.follow = newFollower(w, d.opts.Log, at.Applied)
	d.admin, err = admin.Listen(d.path, adminGreeting(d.ids))
	return err
}

// runLog starts the goroutines of the log.
func (d *DB) runLog() {
	if d.w.follow != nil {
		go d.w.propose.run()
		go d.w.follow.run()
		d.serveAdmin()
	}
}

// closeLog proposes the writes that wait, and the note of what was removed last. It waits a
// moment for their outcomes, and then follows the log no more. The writer must be running.
func (d *DB) closeLog() {
	d.w.admin.Close()
	if d.w.follow == nil {
		return
	}
	moment, cancel := context.WithTimeout(context.Background(), d.w.propose.patience.closing)
	defer cancel()
	if d.w.failed() != nil { // there will be no outcome
		cancel()
	}
	settled := make(chan struct{})
	d.w.finishLater(&choreJob{done: func(error) { d.w.retention.end(settled) }}, nil) // on the writer's goroutine
	select {
	case <-settled:
	case <-moment.Done():
	}
	d.w.propose.close(moment)
	d.admin.Close()
	d.w.follow.close()
}

// keeps tells whether this node makes the store's own writes, such as the expiry of
// messages. Several nodes may do so at the same time: the second such write finds nothing
// to do. A node that cannot apply entries for now makes none.
func (w *writer) keeps() bool {
	return w.opts.Log == nil || w.refusal() == nil && (w.opts.KeepsLog == nil || w.opts.KeepsLog())
}

// refusal is the error for a write that this node could not apply if the log had it; nil if it
// could. Such a write must not come into the log, since its client would not learn its
// outcome. Safe for concurrent use.
func (w *writer) refusal() error {
	if err := w.failed(); err != nil {
		return &relay.Error{Code: relay.StoreFailed, Detail: "the store has failed; nothing was written", Cause: err}
	}
	if w.disk.cramped.Load() {
		return errNoRoom(errCramped)
	}
	if stuck := w.follow.stuck.Load(); stuck != nil {
		return *stuck
	}
	return nil
}

// proposes hands a job of the store's own work to the log, and returns true, if the job is a
// write and there is a log. Only the writer's goroutine may call it.
func (w *writer) proposes(j job) bool {
	if w.propose == nil || j.shared() == nil {
		return false
	}
	w.propose.enqueue(j, 0)
	return true
}

func errNonceReused() error {
	return relay.Errorf(relay.NonceReused, "this nonce was used before with this key; every request needs a fresh one")
}
