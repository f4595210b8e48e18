package db

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// write is a change to the store as a value.
type write interface {
	// apply decides and writes on the open transaction. It uses no clock, no
	// randomness and no I/O but tx. A *Error refuses the write, and then nothing
	// has been written; any other error spoils the whole transaction.
	apply(tx *tx) error
	// size is about how many bytes it brings, to bound a transaction.
	size() int
}

// op is a write on its way through the queue.
type op struct {
	write write
	err   error
	done  func(error) // called once, from the writer, after the commit
}

const (
	maxQueue      = 16 << 10 // waiting writes; beyond it: Overloaded
	maxBatch      = 512      // writes in a transaction
	maxBatchBytes = 8 << 20
	pollEvery     = 250 * time.Millisecond // look for what other processes changed
	housekeeping  = time.Second            // free disk; last-used times
	gatherRounds  = 4                      // times that the writer yields before it takes what is queued
	expireRounds  = 4                      // transactions of expiries in a row, then others have their turn
)

// writer is the one goroutine that changes the file. The fields below the
// queue are its own.
type writer struct {
	d     *DB
	mu    sync.Mutex
	queue []*op
	shut  bool
	wake  chan struct{} // one token: the queue has something, or shut
	fault atomic.Pointer[error]

	c            *conn
	spare        []*op // the queue's other backing array
	last         Position
	pending      map[MechaID]int // counted at first need, then kept
	nextExpiry   int64           // Unix ms of the earliest; 0: none
	nextEmptying int64           // Unix ms of the next emptyExpired; 0: none
	emptied      Position        // up to here, the answers to searches need no emptying
	dataVersion  int64
	keysVersion  int64
	polled       time.Time
	kept         time.Time // last housekeeping
	touched      time.Time // when last-used times were written
	touchedUpto  map[int64]int64
	ckptRunning  bool
	copySoon     bool      // another process has written to the log
	heldInVain   time.Time // when holding the readers back did not help
	batch        tx
	packed       []byte // pushes, on their way into a row
	nonces       noncePage
	filing       filing

	ckptWanted chan struct{} // to the checkpointer
	ckptDone   chan struct{} // from it
	ended      chan struct{} // closed when run has returned
}

func newWriter(d *DB, c *conn) *writer {
	return &writer{d: d, c: c, wake: make(chan struct{}, 1), pending: map[MechaID]int{}, touchedUpto: map[int64]int64{},
		ckptWanted: make(chan struct{}, 1), ckptDone: make(chan struct{}, 1), ended: make(chan struct{})}
}

// do queues a write and waits for its commit. There is no context: a queued
// write will be applied whether anyone waits or not.
func (d *DB) do(w write) error {
	done := make(chan error, 1)
	d.submit(w, func(err error) { done <- err })
	return <-done
}

// submit queues a write; done is called from the writer's goroutine once the
// write is durable or refused, and must not block. It may be called at once.
func (d *DB) submit(wr write, done func(error)) {
	w := d.w
	w.mu.Lock()
	switch {
	case w.shut:
		w.mu.Unlock()
		done(errShuttingDown())
		return
	case len(w.queue) >= maxQueue:
		w.mu.Unlock()
		e := Errorf(Overloaded, "too many writes are waiting")
		e.RetryAfter = time.Second
		done(e)
		return
	}
	w.queue = append(w.queue, &op{write: wr, done: done})
	w.mu.Unlock()
	w.signal()
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stop refuses further writes; run returns when the queue is empty.
func (w *writer) stop() {
	w.mu.Lock()
	w.shut = true
	w.mu.Unlock()
	w.signal()
}

func (w *writer) failed() error {
	if p := w.fault.Load(); p != nil {
		return *p
	}
	return nil
}

// fail marks the store as unusable and calls Options.Fatal, once.
func (w *writer) fail(err error) {
	if w.fault.CompareAndSwap(nil, &err) {
		w.d.opts.Logger.Error("the store has failed; the process must stop", "error", err)
		if w.d.opts.Fatal != nil {
			w.d.opts.Fatal(err)
		}
	}
}

func (w *writer) run() {
	defer close(w.ended)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		w.gather()
		ops, shut := w.take()
		if len(ops) == 0 && shut {
			w.commitPushes()
			w.fileAll()
			w.flushLastUsed()
			return
		}
		if len(ops) == 0 {
			select {
			case <-w.wake:
				if w.d.pushes.len() >= manyNotes {
					w.commitPushes()
				}
			case <-tick.C:
				w.idle()
				w.commitPushes()
			}
			continue
		}
		for len(ops) > 0 {
			w.idle() // before every transaction: its turn must come under load too
			n := batchSize(ops)
			w.commit(ops[:n])
			ops = ops[n:]
		}
	}
}

// gather lets those who are about to queue a write do so first: whoever is
// ready to run gets a processor, for as long as that brings more, and the
// transaction that follows costs each of them less. Nobody is waited for; when
// nothing else is ready, yielding returns at once.
func (w *writer) gather() {
	before := w.queued()
	for i := 0; i < gatherRounds && before > 0; i++ {
		runtime.Gosched()
		now := w.queued()
		if now == before {
			return
		}
		before = now
	}
}

func (w *writer) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// take empties the queue.
func (w *writer) take() (ops []*op, shut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ops, shut = w.queue, w.shut
	clear(w.spare)
	w.queue, w.spare = w.spare[:0], ops
	return ops, shut
}

func batchSize(ops []*op) int {
	bytes := 0
	for i, o := range ops {
		bytes += o.write.size()
		if i == maxBatch || i > 0 && bytes > maxBatchBytes {
			return i
		}
	}
	return len(ops)
}

// idle does, between batches, what is due: looks for other processes' changes,
// lets messages expire (the server alone: it has the sockets to tell), takes
// out old answers to searches, keeps house.
func (w *writer) idle() {
	now := w.d.opts.Now()
	for range expireRounds {
		if !w.d.opts.Serve || w.nextExpiry == 0 || now.UnixMilli() < w.nextExpiry {
			break
		}
		w.commit([]*op{{write: &expireDue{At: now}, done: w.logged("messages did not expire")}})
	}
	if w.d.opts.Serve && w.nextEmptying != 0 && now.UnixMilli() >= w.nextEmptying {
		w.commit([]*op{{write: &emptyExpired{At: now}, done: func(err error) {
			if err != nil {
				w.nextEmptying = now.Add(emptyRetry).UnixMilli()
				w.d.opts.Logger.Error("expired answers to searches were not removed", "error", err)
			}
		}}})
	}
	if real := time.Now(); real.Sub(w.polled) >= pollEvery {
		w.polled = real
		w.poll()
		if real.Sub(w.kept) >= housekeeping {
			w.kept = real
			w.d.checkDisk()
			w.touchKeys(now)
			w.copyForeign()
		}
	}
}

// logged is a done for writes of our own: nobody else would hear of a fault.
func (w *writer) logged(what string) func(error) {
	return func(err error) {
		if err != nil {
			w.d.opts.Logger.Error(what, "error", err)
		}
	}
}

// commit applies ops in one transaction, releases the waiters and rings the bell.
func (w *writer) commit(ops []*op) {
	err := w.attempt(ops)
	if err != nil && len(ops) > 1 && !isFatal(err) && !isDiskFull(err) && !isBusy(err) && !w.batch.committing {
		// One of them cannot be applied: each on its own, so that it fails alone.
		w.d.opts.Logger.Error("a transaction failed; trying its writes one by one", "error", err, "writes", len(ops))
		for i := range ops {
			w.commit(ops[i : i+1])
		}
		return
	}
	if err != nil {
		err = w.explain(err)
	}
	if err == nil && w.batch.keysChanged {
		w.d.keysChanged() // before who revoked a key is told that it no longer works
	}
	for _, o := range ops {
		if err != nil {
			o.err = err
		}
		o.done(o.err)
	}
	if b := w.batch.commit; err == nil && (len(b.Messages) > 0 || len(b.Changes) > 0) {
		w.d.listening.RLock()
		for _, ring := range w.d.bell {
			ring(b)
		}
		w.d.listening.RUnlock()
	}
	if err == nil && w.batch.entriesChanged {
		w.d.mechas.forget()
		w.d.entriesChanged()
	}
	w.checkpointIfDue()
}

// attempt runs one transaction. An error means that nothing of it was
// acknowledged; after batch.committing was set its outcome is unknown.
func (w *writer) attempt(ops []*op) error {
	tx := &w.batch
	tx.reset(w)
	if err := w.failed(); err != nil {
		return err
	}
	if w.d.opts.Discard {
		tx.discard(ops)
		return nil
	}
	if err := w.c.beginWrite(); err != nil {
		return err
	}
	for _, o := range ops {
		o.err = o.write.apply(tx)
		if o.err != nil && ErrorCode(o.err) == Internal {
			w.c.rollback()
			return o.err
		}
	}
	if err := tx.writePushes(); err != nil {
		w.c.rollback()
		return err
	}
	if err := tx.packNonces(ops); err != nil {
		w.c.rollback()
		return err
	}
	if err := tx.file(); err != nil {
		w.c.rollback()
		return err
	}
	tx.committing = true
	if err := w.c.commit(); err != nil {
		w.c.rollback()
		return err
	}
	tx.publish()
	w.d.pushes.forget(tx.pushes)
	return nil
}

// commitPushes writes what no other transaction has taken along.
func (w *writer) commitPushes() {
	if w.failed() == nil && !w.d.diskLow.Load() && w.d.pushes.len() > 0 {
		w.commit(nil)
	}
}

// explain turns a fault of the store into what a client may know.
func (w *writer) explain(err error) error {
	switch {
	case isFatal(err):
		w.fail(err)
		return &Error{Code: StoreFailed, Detail: "the store failed; whether this was written is unknown", Cause: err}
	case isDiskFull(err):
		w.d.diskLow.Store(true)
		return &Error{Code: DiskFull, Detail: "the disk is full; nothing was written", Cause: err}
	case isBusy(err):
		return &Error{Code: Overloaded, Detail: "the database is locked by another process; nothing was written", RetryAfter: time.Second, Cause: err}
	case isReadOnly(err):
		return &Error{Code: Internal, Detail: "the database cannot be written", Cause: fmt.Errorf("%s: %w", w.d.path, err)}
	case w.batch.committing:
		return &Error{Code: StoreFailed, Detail: "the commit failed; whether this was written is unknown", Cause: err}
	}
	return &Error{Code: Internal, Detail: "the write could not be applied", Cause: err}
}

// tx is the transaction in hand: what apply may read and write, and what is
// known only once it has been committed.
type tx struct {
	rx
	w              *writer
	last           Position
	commit         *Commit
	words          map[string]int64 // interned or found in this transaction
	mechas         map[Address]int64
	pending        map[MechaID]int // new counts
	nextExpiry     int64
	nextEmptying   int64
	emptied        Position
	keysChanged    bool
	entriesChanged bool
	committing     bool
	pushes         int     // notes that it takes along
	done           []entry // messages that are pending no longer
}

func (t *tx) reset(w *writer) {
	words, mechas, pending := t.words, t.mechas, t.pending
	if words == nil {
		words, mechas, pending = map[string]int64{}, map[Address]int64{}, map[MechaID]int{}
	}
	clear(words)
	clear(mechas)
	clear(pending)
	*t = tx{rx: rx{c: w.c, d: w.d, now: w.d.opts.Now(), writing: true}, w: w, last: w.last,
		commit: &Commit{}, words: words, mechas: mechas, pending: pending, nextExpiry: w.nextExpiry,
		nextEmptying: w.nextEmptying, emptied: w.emptied}
}

// position gives out the next place in the commit order for a write of time at.
func (t *tx) position(at time.Time) Position {
	t.last = max(t.last+1, positionAt(at))
	return t.last
}

// publish makes what the transaction knew the writer's own, after the commit.
func (t *tx) publish() {
	t.w.last, t.w.nextExpiry, t.w.nonces.open = t.last, t.nextExpiry, false
	t.w.nextEmptying, t.w.emptied = t.nextEmptying, t.emptied
	t.w.filed()
	for id, n := range t.pending {
		t.w.pending[id] = n
	}
	for text, id := range t.words {
		t.d.words.put(id, text)
	}
	for address, id := range t.mechas {
		if id != 0 {
			t.d.mechas.put(id, address)
		}
	}
}

// countPending gives how many messages wait for a Mecha, this transaction included.
func (t *tx) countPending(id MechaID) (int, error) {
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

// addPending moves the count of a mailbox. Call it before the rows change: the
// first time, it counts them.
func (t *tx) addPending(id MechaID, delta int) error {
	if t.d.opts.MaxPending <= 0 {
		return nil // nobody asks
	}
	n, err := t.countPending(id)
	t.pending[id] = n + delta
	return err
}
