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
	w              *writer
	last           relay.Position                       // the last position given out in the shared order
	lastLocal      relay.Position                       // the last position given out to a local row
	brought        *relay.Commit                        // the messages and changes for the listeners
	words          map[string]int64                     // words that were found or made; 0 for a removed one
	mechas         map[relay.Address]int64              // Mechas that were found or made; 0 for a removed one
	pending        map[relay.MechaNumber]int            // counts of pending messages that were made or changed
	claimFrom      map[relay.MechaNumber]relay.Position // where the claims of this transaction have arrived (claims)
	settled        []indexRow                           // messages that are no longer pending
	inserted       []indexedMessage                     // messages that were written, for the late index; the slice is given away
	removed        []indexedMessage                     // messages that were removed
	forgotten      []string                             // words that were removed
	nonces         []relay.NonceHash                    // nonces of the jobs that were applied
	exchanges      []exchange                           // that have ended, and have no row yet
	keysChanged    bool
	entriesChanged bool
	learnedChanged bool
	broadcasts     int         // messages to a crew
	claimed        int         // messages that workers got
	returned       int         // messages that came again
	spent          int         // messages that the relay gave up
	to             []addressee // the recipients of the present message
	ahead          aheadRow
	committing     bool // COMMIT has begun: if it fails, its outcome is unknown
}

func (t *tx) begin(w *writer) {
	words, mechas, pending, claimFrom := t.words, t.mechas, t.pending, t.claimFrom
	if words == nil {
		words, mechas, pending = map[string]int64{}, map[relay.Address]int64{}, map[relay.MechaNumber]int{}
		claimFrom = map[relay.MechaNumber]relay.Position{}
		t.foundWords, t.foundMechas = map[int64]string{}, map[int64]relay.Address{}
	}
	w.lateWords.begin()
	clear(words)
	clear(mechas)
	clear(pending)
	clear(claimFrom)
	clear(t.foundWords)
	clear(t.foundMechas)
	*t = tx{rx: rx{c: w.c, lookups: w.lookups, now: w.opts.Now(), foundWords: t.foundWords, foundMechas: t.foundMechas}, w: w, last: w.last, lastLocal: w.lastLocal,
		brought: &relay.Commit{}, words: words, mechas: mechas, pending: pending, claimFrom: claimFrom, settled: t.settled[:0], removed: t.removed[:0],
		nonces: t.nonces[:0], exchanges: t.exchanges[:0], to: t.to[:0]}
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
	if err == nil && w.batch.keysChanged {
		w.listeners.keysChanged() // before finish, so that a key no longer works when its revocation returns
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
	if err == nil && w.batch.learnedChanged {
		w.listeners.learnedChanged()
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
	if w.replica != nil {
		w.replica.begin()
	}
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
		clear(w.callers)   // some may have been read in the transaction that failed
		clear(w.wordsUsed) // likewise
		w.accepts.forget()
		w.members.forget()
		w.counts.round.forget()
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

// fill applies the jobs and lets the riders board.
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
		if n := nonceOf(o.job); n != 0 && o.err == nil {
			t.nonces = append(t.nonces, n)
		}
	}
	if err := t.keepExchanges(); err != nil {
		return err
	}
	for _, r := range w.riders {
		if err := r.board(t); err != nil {
			return err
		}
	}
	return nil
}

// publish hands the state of the transaction to the writer, after the commit.
func (t *tx) publish() {
	w := t.w
	w.last, w.lastLocal = t.last, t.lastLocal
	w.measures.committed(t)
	w.sayAhead()
	for id, n := range t.pending {
		w.pending[id] = n
	}
	w.claims.committed(t.claimFrom)
	w.words.drop(t.forgotten)
	for text, id := range t.words {
		if id != 0 {
			w.words.put(id, text)
		}
	}
	for address, id := range t.mechas {
		if id != 0 {
			w.mechas.put(id, address)
		}
	}
	w.words.publish(t.foundWords)
	w.mechas.publish(t.foundMechas)
	for _, r := range w.riders {
		r.arrived(t)
	}
	if w.opts.Serve {
		w.retention.unlist.removed(t.removed, w.retention.running(w.opts.Now()))
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

// countPending gives how many messages are pending for a Mecha, with the changes of
// this transaction.
func (t *tx) countPending(id relay.MechaNumber) (int, error) {
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

// addPending changes the count of a Mecha's pending messages. It does nothing before
// countPending has counted them.
func (t *tx) addPending(id relay.MechaNumber, delta int) {
	n, ok := t.pending[id]
	if !ok {
		n, ok = t.w.pending[id]
	}
	if ok {
		t.pending[id] = n + delta
	}
}
