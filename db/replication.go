package db

import (
	"context"
	"fmt"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/readers"
	"relay/db/relay"
)

// replication is the Log of a node: it brings writes into the log of a Following, and applies
// its entries.
type replication struct {
	following *Following
	hooks     engine.Hooks
	w         *engine.Store
	replica   *replica
	follow    *follower // hands the entries of the log over
	propose   *proposer // brings writes into the log
}

// A Following says how a store follows a log.
type Following struct {
	Log Log
	// Found makes the file the first copy that follows Log, which must have no entries. It
	// may be set again until the log has one.
	Found bool
	// Keeps reports whether this node now makes the store's own writes, as the expiry of
	// messages, for all nodes; nil: it does. It is called by the writer's goroutine, several
	// times a second, and must not block.
	Keeps func() bool
	// CommonRules returns the newest rules that every node knows (file.Place.Knows); 0 if that of a node
	// is not known just now; nil: as 0. From then on no node may follow the log whose program
	// does not know them. It is called by the writer's goroutine, several times a second, and must
	// not block.
	CommonRules func() int64
}

// Follow finds the place of the store's file in the log, or makes the file the first copy. It
// refuses a file that does not fit.
func (f *Following) Follow(w *engine.Store, h engine.Hooks) (engine.Log, error) {
	at, follows, err := file.ReadReplica(w.C)
	switch {
	case err != nil:
		return nil, err
	case follows && f.Found && at.Applied > 0: // without an entry, it is the second try to found the same log
		return nil, fmt.Errorf("%s follows a log already", w.Path)
	case follows && at.Version > newestRules:
		return nil, fmt.Errorf("%s has entries that a newer relay has applied by other rules (%d; this one knows %d): "+
			"use that one, or a newer one", w.Path, at.Version, newestRules)
	case !follows && !f.Found:
		return nil, fmt.Errorf("%s follows no log: begin with a copy of the file of a node that does", w.Path)
	case !follows:
		if at, err = becomeCopy(w); err != nil {
			return nil, err
		}
	}
	l := &replication{following: f, hooks: h, w: w}
	engine.Add(w.Table, engine.Kind[*relay.Activate, engine.None]{Decide: l.activate, Silent: true})
	if l.replica, err = newReplica(w, at); err != nil {
		return nil, err
	}
	if err := leaveSyncs(w); err != nil {
		return nil, err
	}
	w.Last, w.Ordered = at.Last, true
	w.Add(l.replica)
	w.Add(&activation{w: w, replica: l.replica, common: f.CommonRules})
	l.propose = newProposer(w, f.Log, at.Log)
	l.propose.refusal, l.propose.fresh = l.refusal, w.Opts.Fresh
	l.propose.rules = func() int64 { return l.replica.place.Load().Version }
	l.follow = newFollower(l, f.Log, at.Applied)
	return l, nil
}

func (l *replication) Enqueue(j engine.Job, of relay.MechaNumber) { l.propose.enqueue(j, of) }
func (l *replication) Take() []engine.Op                          { return l.follow.take() }
func (l *replication) Apply(ops []engine.Op)                      { l.follow.apply(ops) }
func (l *replication) Time() int64                                { return l.replica.file.At }
func (l *replication) Used(n relay.NonceHash) bool                { return l.replica.used(n) }
func (l *replication) Waiting() (n int, oldest time.Time)         { return l.propose.waiting() }
func (l *replication) Place() file.Place                          { return *l.replica.place.Load() }

func (l *replication) Start() {
	go l.propose.run()
	go l.follow.run()
}

// Stop also proposes the note of what was removed last.
func (l *replication) Stop() {
	moment, cancel := context.WithTimeout(context.Background(), l.propose.patience.closing)
	defer cancel()
	if l.w.Failed() != nil { // there will be no outcome
		cancel()
	}
	settled := make(chan struct{})
	l.w.FinishLater(&engine.ChoreJob{Done: func(error) { l.hooks.Settle(settled) }}, nil) // on the writer's goroutine
	select {
	case <-settled:
	case <-moment.Done():
	}
	l.propose.close(moment)
	l.hooks.Unlisten()
	l.follow.close()
}

// Keeps is false also while this node cannot apply entries.
func (l *replication) Keeps() bool {
	return l.refusal() == nil && (l.following.Keeps == nil || l.following.Keeps())
}

// refusal is the error for a write that this node could not apply if the log had it; nil if it
// could. Such a write must not come into the log, since its client would not learn its
// outcome. Safe for concurrent use.
func (l *replication) refusal() error {
	if err := l.w.Failed(); err != nil {
		return &relay.Error{Code: relay.StoreFailed, Detail: "the store has failed; nothing was written", Cause: err}
	}
	if l.w.Disk.Cramped.Load() {
		return engine.ErrNoRoom(engine.ErrCramped)
	}
	if stuck := l.follow.stuck.Load(); stuck != nil {
		return *stuck
	}
	return nil
}

func (l *replication) Await(ctx context.Context, p relay.Position) error {
	reach := &l.replica.reach
	last, moved := reach.look()
	if p <= last {
		return nil
	}
	lag := time.NewTimer(engine.LongestLag)
	defer lag.Stop()
	for p > last {
		select {
		case <-moved:
			last, moved = reach.look()
		case <-lag.C:
			return engine.ErrNotCurrent("this node of the cluster does not have this message yet; ask another one")
		case <-ctx.Done():
			return ctx.Err()
		case <-l.w.Done:
			return readers.ErrShuttingDown()
		}
	}
	return nil
}
