package engine

import (
	"errors"
	"time"

	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Tx is the present transaction of the writer. Jobs read and write by it. The writer
// takes over its other fields once the transaction is committed.
type Tx struct {
	Rx
	Store      *Store
	Last       relay.Position // the last position used in the shared order
	lastLocal  relay.Position // the last position used for a local row
	Brought    *relay.Commit  // the messages and changes for the listeners
	Changed    Topic          // the other topics for the listeners
	ahead      aheadRow
	committing bool // COMMIT has begun: if it fails, its outcome is unknown
}

// begin begins the writer's next transaction, or makes the present one again.
func (t *Tx) begin(w *Store) {
	*t = Tx{Rx: Rx{C: w.C, Caches: w.Caches, Now: w.Opts.Now()}, Store: w, Last: w.Last, lastLocal: w.lastLocal,
		Brought: &relay.Commit{}}
	for _, r := range w.Rooms {
		r.Begin(t)
	}
}

// Next returns the position that the next write gets if its time is at.
func (t *Tx) Next(at time.Time) relay.Position { return max(t.Last+1, relay.PositionAt(at)) }

// Position hands out the next position in the shared order, for a write of time at.
func (t *Tx) Position(at time.Time) relay.Position {
	t.Last = t.Next(at)
	t.aheadOf(t.Last, at)
	return t.Last
}

// LocalPosition hands out a position for a local row. It is greater than all positions of
// the last commit, but not part of the shared order, which stays as it is.
func (t *Tx) LocalPosition(at time.Time) relay.Position {
	t.lastLocal = max(t.lastLocal+1, t.Last+1, relay.PositionAt(at))
	return t.lastLocal
}

// Commit makes one transaction of jobs, calls their Finish, and then calls the listeners.
func (w *Store) Commit(jobs []QueuedJob) {
	err := w.Transact(jobs)
	if err != nil {
		err = w.Explain(err)
		w.Measures.Failures.Add(1)
	}
	w.Release(jobs, err)
}

// Release calls the Finish of jobs, and then the listeners, after Transact.
func (w *Store) Release(jobs []QueuedJob, err error) {
	if err == nil {
		// before Finish, so that a key no longer works when its revocation returns
		w.Listeners.notify(w.batch.Changed & KeysChanged)
	}
	for i := range jobs {
		o := &jobs[i]
		if err != nil && !o.spoiled {
			o.Err = err
		}
		o.Job.Finish(o.Err)
	}
	if b := w.batch.Brought; err == nil && (len(b.Messages) > 0 || len(b.Changes) > 0) {
		w.Listeners.committed(b)
	}
	if err == nil {
		w.Listeners.notify(w.batch.Changed &^ KeysChanged)
	}
	if w.batch.committing { // without a COMMIT, the log is as it was
		w.Checkpoints.begin()
	}
}

// tryCommit makes one transaction of jobs. After an error, none of them is applied; but
// if batch.committing is set, that is unknown. If one job cannot be applied, tryCommit
// marks it as spoiled and makes the transaction again without it. Whether a write can be
// applied depends on the state and the write alone, so every copy of the store leaves out
// the same ones.
func (w *Store) tryCommit(jobs []QueuedJob) error {
	for {
		err := w.try(jobs)
		if err == nil || sqlite.IsOfMachine(err) || !w.spoil(jobs, err) {
			return err
		}
	}
}

// spoil marks the job whose Apply returned err, and reports whether there is one.
func (w *Store) spoil(jobs []QueuedJob, err error) bool {
	for i := range jobs {
		o := &jobs[i]
		if !o.spoiled && o.Err == err {
			w.Opts.Logger.Error("a write cannot be applied; its transaction is made again without it", "error", err,
				"writes", len(jobs))
			o.spoiled, o.Err = true, &relay.Error{Code: relay.Internal, Detail: "the write could not be applied", Cause: err}
			return true
		}
	}
	return false
}

// try makes one transaction of the jobs that are not spoiled.
func (w *Store) try(jobs []QueuedJob) error {
	t := &w.batch
	t.begin(w)
	if err := w.Failed(); err != nil {
		return err
	}
	if w.StartedFull {
		return ErrStartedFull
	}
	began := time.Now()
	w.Measures.began(jobs, t.Now)
	w.lock.wait()
	defer w.lock.end()
	if err := w.C.BeginWrite(); err != nil {
		return err
	}
	w.lock.begin()
	err := w.fill(t, jobs)
	if err == nil {
		t.committing = true
		err = w.sync(jobs)
	}
	if err != nil {
		w.C.Rollback()
		w.forgetRead() // which was read in the failed transaction
		return err
	}
	w.Measures.Commit.Observe(time.Since(began))
	w.Disk.committed(w.C)
	t.publish()
	return nil
}

// sync commits the transaction of jobs, and measures how long that takes.
func (w *Store) sync(jobs []QueuedJob) error {
	if !changes(jobs) {
		return w.C.Commit()
	}
	began := time.Now()
	err := w.C.Commit()
	w.Measures.Sync.Observe(time.Since(began))
	return err
}

// fill applies the jobs, and has the rooms add their rows.
func (w *Store) fill(t *Tx, jobs []QueuedJob) error {
	if err := w.forgetStale(); err != nil {
		return err
	}
	for i := range jobs {
		o := &jobs[i]
		if o.spoiled {
			continue
		}
		o.Err = o.Job.Apply(t)
		if o.Err == nil {
			o.Err = t.keepAhead()
		} else {
			t.ahead = aheadRow{} // a refused job has written nothing
		}
		if o.Err != nil && relay.ErrorCode(o.Err) == relay.Internal {
			return o.Err
		}
		if o.Err == nil {
			for _, r := range w.Rooms {
				r.Applied(t, o.Job)
			}
		}
	}
	for _, r := range w.Rooms {
		if err := r.BeforeCommit(t); err != nil {
			return err
		}
	}
	return nil
}

// forgetRead has the rooms drop what they have read from the file.
func (w *Store) forgetRead() {
	for _, r := range w.Rooms {
		r.Forget()
	}
}

// publish hands the state of the transaction to the writer, after the commit.
func (t *Tx) publish() {
	w := t.Store
	w.Last, w.lastLocal = t.Last, t.lastLocal
	w.logAhead()
	for _, r := range w.Rooms {
		r.AfterCommit(t)
	}
}

// Explain turns the error of a transaction into the error for the clients.
func (w *Store) Explain(err error) error {
	switch {
	case sqlite.IsFatal(err):
		w.Fail(err)
		return &relay.Error{Code: relay.StoreFailed, Detail: "the store failed; whether this was written is unknown",
			Cause: err}
	case errors.Is(err, ErrStartedFull):
		w.Disk.Low.Store(true)
		return ErrNoRoom(err)
	case sqlite.IsDiskFull(err):
		w.Disk.becameFull(w.C)
		return ErrNoRoom(err)
	case sqlite.IsBusy(err):
		return &relay.Error{Code: relay.DatabaseLocked,
			Detail:     "another process holds the write lock of the database; nothing was written",
			RetryAfter: time.Second, Cause: err}
	case sqlite.IsReadOnly(err):
		return &relay.Error{Code: relay.Internal, Detail: "the database cannot be written", Cause: file.Explain(w.Path, err)}
	case w.batch.committing:
		return &relay.Error{Code: relay.StoreFailed, Detail: "the commit failed; whether this was written is unknown",
			Cause: err}
	}
	return &relay.Error{Code: relay.Internal, Detail: "the write could not be applied", Cause: err}
}
