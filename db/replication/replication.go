// Package replication makes a store a copy that follows a log of writes, which several nodes share.
//
// A write goes this way. The node that accepted it proposes it (Proposer): it appends an envelope of
// writes to the log. Each node, this one too, gets the entries in the log's order (Follower) and
// applies them (Replica). The accepting node then returns the outcome to the client. So a node
// decides nothing alone: the same entries make the same store, down to each position.
//
// The store knows it by engine.Log alone; a program sets it by db.Options.Log. CreateLog,
// RecreateLog and LeaveLog change which log the file of a stopped server follows.
package replication

import (
	"context"
	"fmt"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/readers"
	"relay/db/relay"
)

// Replication is the engine.Log of a node: it appends writes to the log of a Following, and
// applies its entries.
type Replication struct {
	following *Following
	hooks     engine.Hooks
	w         *engine.Store
	Replica   *Replica
	Follow    *Follower // receives the entries of the log
	Propose   *Proposer // appends writes to the log
}

// A Following says how a store follows a log.
type Following struct {
	Log Log
	// Found makes the file the first copy that follows Log, which must have no entries. It
	// may be set again until the log has an entry.
	Found bool
	// Keeps reports whether this node now issues maintenance writes, such as the expiry of
	// messages, for all nodes; nil means always. The writer's goroutine calls it several
	// times a second; it must not block.
	Keeps func() bool
	// CommonRules returns the newest rules that every node knows (file.Place.Knows), or 0 if one node's
	// are not known just now; nil means 0. From then on no node may follow the log whose program does
	// not know them. The writer's goroutine calls it several times a second; it must not block.
	CommonRules func() int64
}

// Follow finds the place of the store's file in the log, or makes the file the first copy. It
// refuses a file that does not fit.
func (f *Following) Follow(w *engine.Store, h engine.Hooks) (engine.Log, error) {
	at, follows, err := file.ReadReplica(w.C)
	switch {
	case err != nil:
		return nil, err
	case follows && f.Found && at.Applied > 0: // without an entry, it is the second try to create the same log
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
	l := &Replication{following: f, hooks: h, w: w}
	engine.Add(w.Table, engine.Kind[*relay.Activate, engine.None]{Decide: l.activate, Silent: true})
	if l.Replica, err = newReplica(w, at); err != nil {
		return nil, err
	}
	if err := leaveSyncs(w); err != nil {
		return nil, err
	}
	w.Last, w.Ordered = at.Last, true
	w.Add(l.Replica)
	w.Add(&ruleUpgrade{w: w, replica: l.Replica, common: f.CommonRules})
	l.Propose = newProposer(w, f.Log, at.Log)
	l.Propose.refusal = l.refusal
	l.Propose.rules = func() int64 { return l.Replica.place.Load().Version }
	l.Follow = newFollower(l, f.Log, at.Applied)
	return l, nil
}

func (l *Replication) Enqueue(j engine.Job, of relay.MechaNumber) { l.Propose.enqueue(j, of) }
func (l *Replication) Take() []engine.QueuedJob                   { return l.Follow.take() }
func (l *Replication) Apply(jobs []engine.QueuedJob)              { l.Follow.apply(jobs) }
func (l *Replication) Time() int64                                { return l.Replica.File.At }
func (l *Replication) Used(n relay.NonceHash) bool                { return l.Replica.used(n) }
func (l *Replication) Waiting() (n int, oldest time.Time)         { return l.Propose.waiting() }
func (l *Replication) Place() file.Place                          { return *l.Replica.place.Load() }

func (l *Replication) Start() {
	go l.Propose.run()
	go l.Follow.run()
}

// Stop also proposes the note of what was removed last.
func (l *Replication) Stop() {
	moment, cancel := context.WithTimeout(context.Background(), l.Propose.Timeouts.Closing)
	defer cancel()
	if l.w.Failed() != nil { // there will be no outcome
		cancel()
	}
	settled := make(chan struct{})
	l.w.FinishLater(&engine.LocalJob{Done: func(error) { l.hooks.Settle(settled) }}, nil) // on the writer's goroutine
	select {
	case <-settled:
	case <-moment.Done():
	}
	l.Propose.close(moment)
	l.hooks.Unlisten()
	l.Follow.close()
}

// Keeps is also false while this node cannot apply entries.
func (l *Replication) Keeps() bool {
	return l.refusal() == nil && (l.following.Keeps == nil || l.following.Keeps())
}

// refusal returns why this node could not apply a new write if the log had it, or nil. Such a write
// must not go into the log, since its client would not learn its outcome. Any goroutine may
// call it.
func (l *Replication) refusal() error {
	if err := l.w.Failed(); err != nil {
		return &relay.Error{Code: relay.StoreFailed, Detail: "the store has failed; nothing was written", Cause: err}
	}
	if l.w.Disk.StartedFull.Load() {
		return engine.ErrNoRoom(engine.ErrStartedFull)
	}
	if stuck := l.Follow.stuck.Load(); stuck != nil {
		return *stuck
	}
	return nil
}

func (l *Replication) Await(ctx context.Context, p relay.Position) error {
	reach := &l.Replica.AppliedTo
	last, moved := reach.Get()
	if p <= last {
		return nil
	}
	lag := time.NewTimer(engine.MaxLag)
	defer lag.Stop()
	for p > last {
		select {
		case <-moved:
			last, moved = reach.Get()
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
