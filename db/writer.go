package db

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

const (
	maxQueue      = 16 << 10 // waiting jobs; beyond it: Overloaded
	maxBatch      = 512      // jobs in a transaction
	maxBatchBytes = 8 << 20
	servantsEvery = 250 * time.Millisecond // between two looks at what is due, when there is nothing to write
	gatherRounds  = 4                      // times that the writer yields before it takes what is queued
)

// writer is the one goroutine that changes the file. Other goroutines reach it
// through the queue alone; the fields below the queue are the writer's own.
type writer struct {
	mu    sync.Mutex
	queue []op
	shut  bool
	wake  chan struct{} // holds a token while the queue has something, or shut is set
	fault atomic.Pointer[error]
	ended chan struct{} // closed when run has returned

	*lookups
	opts      Options
	path      string
	c         *sqlite.Conn
	disk      *disk
	listeners *listeners
	transact  func([]op) error // makes one transaction of some jobs

	spare     []op           // the queue's other backing array
	batch     tx             // the transaction in hand
	last      relay.Position // the newest in the shared order
	lastLocal relay.Position // the newest of the rows that are this process's own
	pending   map[relay.MechaID]int
	callers   map[relay.KeyNumber]*relay.Key // the keys of writes, as the file has them
	cachedAt  int64                          // PRAGMA data_version at which callers and mechas were read

	expiry      expiry
	foreign     foreign
	pushes      pushNotes
	nonces      noncePacker
	segments    segmentWriter
	checkpoints checkpoints
	keyUse      keyUse
	searches    searchCleaner
	servants    []servant // of the above, those that work between transactions
	riders      []rider   // of the above, those that write in the transactions of others
}

// A servant does work of the store's own between two transactions, on the
// writer's goroutine.
type servant interface {
	// due tells whether there is something to do. now is by the store's clock.
	due(now time.Time) bool
	// do does it. It may commit transactions.
	do(now time.Time)
}

// A rider writes what is this process's own in a transaction that is made for
// others, so that it costs no transaction.
type rider interface {
	board(t *tx) error // just before the commit
	arrived(t *tx)     // after the commit, unless it failed
}

func newWriter(d *DB, c *sqlite.Conn) *writer {
	w := &writer{
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
		lookups: d.lookups, opts: d.opts, path: d.path, c: c, disk: &d.disk, listeners: &d.listeners,
		pending: map[relay.MechaID]int{}, callers: map[relay.KeyNumber]*relay.Key{},
	}
	w.transact = w.attempt
	w.expiry = expiry{w: w}
	w.foreign = foreign{w: w, readers: d.readers}
	w.pushes.w, w.nonces.w = w, w
	w.segments = segmentWriter{w: w, index: d.late}
	w.checkpoints = newCheckpoints(w, d.readers)
	w.keyUse = keyUse{w: w, cache: &d.keys, written: map[relay.KeyNumber]int64{}}
	w.searches = searchCleaner{w: w}
	if d.opts.Serve { // who does not serve has no sockets to tell
		w.servants = []servant{&w.expiry, &w.searches}
	}
	w.servants = append(w.servants, &w.foreign, w.disk, &w.keyUse, &w.checkpoints)
	w.riders = []rider{&w.pushes, &w.nonces, &w.segments}
	return w
}

// enqueue queues a job. Its finish is called from the writer's goroutine once the
// job is durable or refused, or at once if the queue takes no more.
func (w *writer) enqueue(j job) {
	w.mu.Lock()
	switch {
	case w.shut:
		w.mu.Unlock()
		j.finish(errShuttingDown())
		return
	case len(w.queue) >= maxQueue:
		w.mu.Unlock()
		e := relay.Errorf(relay.Overloaded, "too many writes are waiting")
		e.RetryAfter = time.Second
		j.finish(e)
		return
	}
	w.queue = append(w.queue, op{job: j})
	w.mu.Unlock()
	w.signal()
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stop refuses further jobs; run returns when the queue is empty.
func (w *writer) stop() {
	w.mu.Lock()
	w.shut = true
	w.mu.Unlock()
	w.signal()
}

// failed gives the fault after which nothing more is written; nil while all is well.
func (w *writer) failed() error {
	if p := w.fault.Load(); p != nil {
		return *p
	}
	return nil
}

// fail marks the store as unusable and calls Options.Fatal, once.
func (w *writer) fail(err error) {
	if w.fault.CompareAndSwap(nil, &err) {
		w.opts.Logger.Error("the store has failed; the process must stop", "error", err)
		if w.opts.Fatal != nil {
			w.opts.Fatal(err)
		}
	}
}

func (w *writer) run() {
	defer close(w.ended)
	tick := time.NewTicker(servantsEvery)
	defer tick.Stop()
	for {
		w.gather()
		ops, shut := w.take()
		if len(ops) == 0 && shut {
			w.pushes.flush()
			w.segments.flush()
			w.keyUse.flush()
			return
		}
		if len(ops) == 0 {
			select {
			case <-w.wake:
				if w.pushes.many() {
					w.pushes.flush()
				}
			case <-tick.C:
				w.runServants()
				w.pushes.flush()
			}
			continue
		}
		for len(ops) > 0 {
			w.runServants() // before every transaction, so that the servants get their turn under load too
			n := batchSize(ops)
			w.commit(ops[:n])
			ops = ops[n:]
		}
	}
}

// serve lets the servants do what is due.
func (w *writer) runServants() {
	now := w.opts.Now()
	for _, s := range w.servants {
		if s.due(now) {
			s.do(now)
		}
	}
}

// gather lets the goroutines that are about to queue a job do so first: those
// that are ready to run get a processor, for as long as that brings more jobs,
// and the transaction that follows costs each of them less. The writer waits for
// nobody: when nothing else is ready to run, yielding returns at once.
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
func (w *writer) take() (ops []op, shut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ops, shut = w.queue, w.shut
	clear(w.spare)
	w.queue, w.spare = w.spare[:0], ops
	return ops, shut
}

func batchSize(ops []op) int {
	bytes := 0
	for i, o := range ops {
		bytes += o.job.size()
		if i == maxBatch || i > 0 && bytes > maxBatchBytes {
			return i
		}
	}
	return len(ops)
}

// doNow makes a transaction of one chore, on the writer's goroutine.
func (w *writer) doNow(c chore, done func(error)) {
	w.commit([]op{{job: &choreJob{c, done}}})
}

// logged is what to do with the outcome of the store's own work, of which nobody
// else would hear.
func (w *writer) logged(fault string) func(error) {
	return func(err error) {
		if err != nil {
			w.opts.Logger.Error(fault, "error", err)
		}
	}
}
