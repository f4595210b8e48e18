package db

import (
	"errors"
	"time"

	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// tx is the present transaction of the writer. Jobs read and write by it. Its other
// fields are state that the writer takes over when the transaction has been committed.
type tx struct {
	rx
	w          *writer
	last       relay.Position // the last position given out in the shared order
	lastLocal  relay.Position // the last position given out to a local row
	brought    *relay.Commit  // the messages and changes for the listeners
	changed    topic          // what else the listeners are to be told
	ahead      aheadRow
	committing bool // COMMIT has begun: if it fails, its outcome is unknown
}

// begin begins the writer's next transaction, or makes the present one again.
func (t *tx) begin(w *writer) {
	*t = tx{rx: rx{c: w.c, Lookups: w.Lookups, now: w.opts.Now()}, w: w, last: w.last, lastLocal: w.lastLocal, brought: &relay.Commit{}}
	for _, r := range w.rooms {
		r.Begin(t)
	}
}

// next tells which position a write of time at gets if it gets the next one.
func (t *tx) next(at time.Time) relay.Position { return max(t.last+1, relay.PositionAt(at)) }

// position gives out the next position in the shared order, for a write of time at.
func (t *tx) position(at time.Time) relay.Position {
	t.last = t.next(at)
	t.aheadOf(t.last, at)
	return t.last
}

// localPosition gives out a position for a local row. It is greater than all positions
// of the last commit, but not part of the shared order, which stays as it is.
func (t *tx) localPosition(at time.Time) relay.Position {
	t.lastLocal = max(t.lastLocal+1, t.last+1, relay.PositionAt(at))
	return t.lastLocal
}

// commit makes one transaction of ops, calls their finish, then calls the listeners.
func (w *writer) commit(ops []op) {
	err := w.transact(ops)
	if err != nil {
		err = w.explain(err)
		w.measures.Failures.Add(1)
	}
	w.release(ops, err)
}

// release calls the finish of ops, and then the listeners, after transact.
func (w *writer) release(ops []op, err error) {
	if err == nil {
		w.listeners.tell(w.batch.changed & keysChanged) // before finish, so that a key no longer works when its revocation returns
	}
	for i := range ops {
		o := &ops[i]
		if err != nil && !o.spoiled {
			o.err = err
		}
		o.job.finish(o.err)
	}
	if b := w.batch.brought; err == nil && (len(b.Messages) > 0 || len(b.Changes) > 0) {
		w.listeners.committed(b)
	}
	if err == nil {
		w.listeners.tell(w.batch.changed &^ keysChanged)
	}
	if w.batch.committing { // without a COMMIT, the log is as it was
		w.checkpoints.begin()
	}
}

// attempt makes one transaction of ops. After an error, none of them is applied; but if
// batch.committing is set, that is unknown. If one op cannot be applied, attempt marks
// it as spoiled and makes the transaction again without it. Whether a write can be
// applied depends on the state and the write alone, so every copy of the store leaves
// out the same ones.
func (w *writer) attempt(ops []op) error {
	for {
		err := w.try(ops)
		if err == nil || sqlite.IsOfMachine(err) || !w.spoil(ops, err) {
			return err
		}
	}
}

// spoil marks the op whose apply returned err. It returns false if there is none.
func (w *writer) spoil(ops []op, err error) bool {
	for i := range ops {
		o := &ops[i]
		if !o.spoiled && o.err == err {
			w.opts.Logger.Error("a write cannot be applied; its transaction is made again without it", "error", err, "writes", len(ops))
			o.spoiled, o.err = true, &relay.Error{Code: relay.Internal, Detail: "the write could not be applied", Cause: err}
			return true
		}
	}
	return false
}

// try makes one transaction of the ops that are not spoiled.
func (w *writer) try(ops []op) error {
	t := &w.batch
	t.begin(w)
	if err := w.failed(); err != nil {
		return err
	}
	if w.cramped {
		return errCramped
	}
	began := time.Now()
	w.measures.began(ops, t.now)
	w.lock.wait()
	defer w.lock.end()
	if err := w.c.BeginWrite(); err != nil {
		return err
	}
	w.lock.begin()
	err := w.fill(t, ops)
	if err == nil {
		t.committing = true
		err = w.sync(ops)
	}
	if err != nil {
		w.c.Rollback()
		w.forgetRead() // what was read in the transaction that failed
		return err
	}
	w.measures.Commit.Observe(time.Since(began))
	w.disk.committed(w.c)
	t.publish()
	return nil
}

// sync commits the transaction of ops, and measures how long that takes.
func (w *writer) sync(ops []op) error {
	if !changes(ops) {
		return w.c.Commit()
	}
	began := time.Now()
	err := w.c.Commit()
	w.measures.Sync.Observe(time.Since(began))
	return err
}

// fill applies the jobs, and has the rooms add their rows.
func (w *writer) fill(t *tx, ops []op) error {
	if err := w.forgetStale(); err != nil {
		return err
	}
	for i := range ops {
		o := &ops[i]
		if o.spoiled {
			continue
		}
		o.err = o.job.apply(t)
		if o.err == nil {
			o.err = t.keepAhead()
		} else {
			t.ahead = aheadRow{} // a refused job has written nothing
		}
		if o.err != nil && relay.ErrorCode(o.err) == relay.Internal {
			return o.err
		}
		if o.err == nil {
			for _, r := range w.rooms {
				r.Applied(t, o.job)
			}
		}
	}
	for _, r := range w.rooms {
		if err := r.Board(t); err != nil {
			return err
		}
	}
	return nil
}

// forgetRead has the rooms drop what they have read from the file.
func (w *writer) forgetRead() {
	for _, r := range w.rooms {
		r.Forget()
	}
}

// publish hands the state of the transaction to the writer, after the commit.
func (t *tx) publish() {
	w := t.w
	w.last, w.lastLocal = t.last, t.lastLocal
	w.sayAhead()
	for _, r := range w.rooms {
		r.Arrived(t)
	}
}

// explain turns the error of a transaction into the error for the clients.
func (w *writer) explain(err error) error {
	switch {
	case sqlite.IsFatal(err):
		w.fail(err)
		return &relay.Error{Code: relay.StoreFailed, Detail: "the store failed; whether this was written is unknown", Cause: err}
	case errors.Is(err, errCramped):
		w.disk.low.Store(true)
		return errNoRoom(err)
	case sqlite.IsDiskFull(err):
		w.disk.becameFull(w.c)
		return errNoRoom(err)
	case sqlite.IsBusy(err):
		return &relay.Error{Code: relay.DatabaseLocked, Detail: "another process holds the write lock of the database; nothing was written", RetryAfter: time.Second, Cause: err}
	case sqlite.IsReadOnly(err):
		return &relay.Error{Code: relay.Internal, Detail: "the database cannot be written", Cause: file.Explain(w.path, err)}
	case w.batch.committing:
		return &relay.Error{Code: relay.StoreFailed, Detail: "the commit failed; whether this was written is unknown", Cause: err}
	}
	return &relay.Error{Code: relay.Internal, Detail: "the write could not be applied", Cause: err}
}
