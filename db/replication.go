package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"relay/db/admin"
	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/readers"
	"relay/db/relay"
)

// replication is the Log of a node: it brings writes into the log of Options.Log, and
// applies its entries.
type replication struct {
	db      *DB
	w       *engine.Store
	replica *replica
	follow  *follower // hands the entries of the log over
	propose *proposer // brings writes into the log
}

// openLog finds the place of the file in the log of Options.Log, or makes the file the first
// copy. It refuses a file that does not fit the options.
func (d *DB) openLog() error {
	w := d.w
	at, follows, err := file.ReadReplica(w.C)
	switch {
	case err != nil:
		return err
	case d.opts.Log != nil && !d.w.Opts.Serve:
		return errors.New("only a server can follow a log")
	case follows && d.server == nil && !d.w.Opts.Serve:
		client, err := admin.NewClient(d.w.Path)
		if err != nil {
			return err
		}
		d.server = &handover{Client: client, d: d}
		d.lock.Leave(false) // for the server that may yet come
		d.lock = nil
	}
	if d.server != nil {
		d.server.follows, w.HandOver = follows, d.server.take
		return nil
	}
	switch {
	case d.opts.Log == nil && follows:
		return fmt.Errorf("%s is one of several copies that follow a log, and this program was given no log: relay serve takes it by --cluster, commands work beside a server that runs, and relay cluster leave makes the file a plain one", d.w.Path)
	case d.opts.Log == nil:
		return nil
	case follows && d.opts.FoundLog && at.Applied > 0: // without an entry, it is the second try to found the same log
		return fmt.Errorf("%s follows a log already", d.w.Path)
	case follows && at.Version > newestRules:
		return fmt.Errorf("%s has entries that a newer relay has applied by other rules (%d; this one knows %d): use that one, or a newer one", d.w.Path, at.Version, newestRules)
	case !follows && !d.opts.FoundLog:
		return fmt.Errorf("%s follows no log: begin with a copy of the file of a node that does", d.w.Path)
	case !follows:
		if at, err = becomeCopy(w); err != nil {
			return err
		}
	}
	l := &replication{db: d, w: w}
	engine.Add(w.Table, engine.Kind[*relay.Activate, engine.None]{Decide: l.activate, Silent: true})
	if l.replica, err = newReplica(w, at); err != nil {
		return err
	}
	if err := leaveSyncs(w); err != nil {
		return err
	}
	w.Last, w.Ordered = at.Last, true
	w.Log = l
	w.Add(l.replica)
	w.Add(&activation{w: w, replica: l.replica, common: d.opts.CommonRules})
	l.propose = newProposer(w, d.opts.Log, at.Log)
	l.propose.refusal, l.propose.fresh = l.refusal, d.w.Opts.Fresh
	l.propose.rules = func() int64 { return l.replica.place.Load().Version }
	l.follow = newFollower(l, d.opts.Log, at.Applied)
	return nil
}

func (l *replication) Enqueue(j engine.Job, of relay.MechaNumber) { l.propose.enqueue(j, of) }
func (l *replication) Take() []engine.Op                          { return l.follow.take() }
func (l *replication) Apply(ops []engine.Op)                      { l.follow.apply(ops) }
func (l *replication) Time() int64                                { return l.replica.file.At }
func (l *replication) Used(n relay.NonceHash) bool                { return l.replica.used(n) }
func (l *replication) Waiting() (n int, oldest time.Time)         { return l.propose.waiting() }
func (l *replication) Applied() uint64                            { return l.replica.place.Load().Applied }

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
	l.w.FinishLater(&engine.ChoreJob{Done: func(error) { l.db.Retention.End(settled) }}, nil) // on the writer's goroutine
	select {
	case <-settled:
	case <-moment.Done():
	}
	l.propose.close(moment)
	l.db.admin.Close()
	l.follow.close()
}

// Keeps is false also while this node cannot apply entries.
func (l *replication) Keeps() bool {
	return l.refusal() == nil && (l.db.opts.KeepsLog == nil || l.db.opts.KeepsLog())
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
		case <-l.db.w.Done:
			return readers.ErrShuttingDown()
		}
	}
	return nil
}
