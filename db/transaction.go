package db

import (
	"fmt"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// tx is the transaction in hand: what a job may read and write, and what the
// writer makes its own once the transaction has been committed.
type tx struct {
	rx
	w              *writer
	last           relay.Position // in the shared order
	lastLocal      relay.Position
	brought        *relay.Commit
	words          map[string]int64 // found or made in this transaction
	mechas         map[relay.Address]int64
	pending        map[relay.MechaID]int // new counts
	settled        []mailboxRow          // messages that are pending no longer
	nonces         []relay.NonceHash     // of the writes that were applied
	keysChanged    bool
	entriesChanged bool
	committing     bool // COMMIT has begun: if it fails, its outcome is unknown
}

func (t *tx) begin(w *writer) {
	words, mechas, pending := t.words, t.mechas, t.pending
	if words == nil {
		words, mechas, pending = map[string]int64{}, map[relay.Address]int64{}, map[relay.MechaID]int{}
	}
	clear(words)
	clear(mechas)
	clear(pending)
	*t = tx{rx: rx{c: w.c, lookups: w.lookups, now: w.opts.Now(), writing: true}, w: w, last: w.last, lastLocal: w.lastLocal,
		brought: &relay.Commit{}, words: words, mechas: mechas, pending: pending, settled: t.settled[:0], nonces: t.nonces[:0]}
}

// position gives out the next place in the shared order, to a write of time at.
func (t *tx) position(at time.Time) relay.Position {
	t.last = max(t.last+1, relay.PositionAt(at))
	return t.last
}

// localPosition gives out a place for a row that is this process's own: behind all
// that has been committed, but not in the shared order, which it leaves as it is.
func (t *tx) localPosition(at time.Time) relay.Position {
	t.lastLocal = max(t.lastLocal+1, t.last+1, relay.PositionAt(at))
	return t.lastLocal
}

// commit makes one transaction of ops, calls their finish, and tells the listeners.
func (w *writer) commit(ops []op) {
	err := w.transact(ops)
	if err != nil {
		err = w.explain(err)
	}
	if err == nil && w.batch.keysChanged {
		w.listeners.keysChanged() // first: who revoked a key is told that it no longer works
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
	if err == nil && w.batch.entriesChanged {
		w.mechas.forget()
		w.listeners.entriesChanged()
	}
	w.checkpoints.begin()
}

// attempt makes one transaction of ops. An error means that nothing of it was
// acknowledged; after batch.committing was set its outcome is unknown. An op that
// cannot be applied is marked as spoiled, and the transaction is made without it:
// whether it can be depends on the state and the write alone, so every copy of the
// store leaves out the same ops.
func (w *writer) attempt(ops []op) error {
	for {
		err := w.try(ops)
		if err == nil || sqlite.IsOfMachine(err) || !w.spoil(ops, err) {
			return err
		}
	}
}

// spoil marks the op that err is of, and tells whether there is one.
func (w *writer) spoil(ops []op, err error) bool {
	for i := range ops {
		o := &ops[i]
		if !o.spoiled && o.err == err {
			w.opts.Logger.Error("a write cannot be applied; the others of its transaction are", "error", err, "writes", len(ops))
			o.spoiled, o.err = true, &relay.Error{Code: relay.Internal, Detail: "the write could not be applied", Cause: err}
			return true
		}
	}
	return false
}

func (w *writer) try(ops []op) error {
	t := &w.batch
	t.begin(w)
	if err := w.failed(); err != nil {
		return err
	}
	if err := w.c.BeginWrite(); err != nil {
		return err
	}
	err := w.fill(t, ops)
	if err == nil {
		t.committing = true
		err = w.c.Commit()
	}
	if err != nil {
		w.c.Rollback()
		clear(w.callers) // some may be of the transaction that failed
		return err
	}
	t.publish()
	return nil
}

// fill writes all that the transaction is to bring.
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
		if o.err != nil && relay.ErrorCode(o.err) == relay.Internal {
			return o.err
		}
		if n := nonceOf(o.job.shared()); n != 0 && o.err == nil {
			t.nonces = append(t.nonces, n)
		}
	}
	for _, r := range w.riders {
		if err := r.board(t); err != nil {
			return err
		}
	}
	return nil
}

// publish makes what the transaction knew the writer's own, after the commit.
func (t *tx) publish() {
	w := t.w
	w.last, w.lastLocal = t.last, t.lastLocal
	for id, n := range t.pending {
		w.pending[id] = n
	}
	for text, id := range t.words {
		w.words.put(id, text)
	}
	for address, id := range t.mechas {
		if id != 0 {
			w.mechas.put(id, address)
		}
	}
	for _, r := range w.riders {
		r.arrived(t)
	}
}

// explain turns a fault of the store into what a client may know.
func (w *writer) explain(err error) error {
	switch {
	case sqlite.IsFatal(err):
		w.fail(err)
		return &relay.Error{Code: relay.StoreFailed, Detail: "the store failed; whether this was written is unknown", Cause: err}
	case sqlite.IsDiskFull(err):
		w.disk.low.Store(true)
		return &relay.Error{Code: relay.DiskFull, Detail: "the disk is full; nothing was written", Cause: err}
	case sqlite.IsBusy(err):
		return &relay.Error{Code: relay.Overloaded, Detail: "the database is locked by another process; nothing was written", RetryAfter: time.Second, Cause: err}
	case sqlite.IsReadOnly(err):
		return &relay.Error{Code: relay.Internal, Detail: "the database cannot be written", Cause: fmt.Errorf("%s: %w", w.path, err)}
	case w.batch.committing:
		return &relay.Error{Code: relay.StoreFailed, Detail: "the commit failed; whether this was written is unknown", Cause: err}
	}
	return &relay.Error{Code: relay.Internal, Detail: "the write could not be applied", Cause: err}
}

// countPending gives how many messages wait for a Mecha, this transaction included.
func (t *tx) countPending(id relay.MechaID) (int, error) {
	if n, ok := t.pending[id]; ok {
		return n, nil
	}
	if n, ok := t.w.pending[id]; ok {
		return n, nil
	}
	n, err := t.countOpen(id)
	if err == nil {
		t.pending[id] = n
	}
	return n, err
}

// addPending moves the count of a mailbox, if it has been counted: else the first
// who asks counts it.
func (t *tx) addPending(id relay.MechaID, delta int) {
	n, ok := t.pending[id]
	if !ok {
		n, ok = t.w.pending[id]
	}
	if ok {
		t.pending[id] = n + delta
	}
}
