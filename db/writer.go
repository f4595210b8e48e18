package db

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/file"
	"relay/db/internal/names"
	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

const (
	commandBatch = 64                     // jobs in a transaction of a command, because a server may wait for it
	mostRest     = 50 * time.Millisecond  // the longest pause of a command between two transactions
	tasksEvery   = 250 * time.Millisecond // how often background work is looked for while no jobs come
	gatherRounds = 4                      // how often the writer yields before it takes the queue
)

// storeOptions are those of Options that the writer itself needs.
type storeOptions struct {
	Schema      string // the text of schema.sql
	Serve       bool
	MinFreeDisk int64
	LockWait    time.Duration
	By          relay.Actor
	Now         func() time.Time
	Logger      *slog.Logger
	Fatal       func(error)
	Fresh       func() bool
	Seen        func(ctx context.Context, number uint64) error
}

// applyLockWait has the writer's connection wait for the lock as long as LockWait says.
func (o *storeOptions) applyLockWait(c *sqlite.Conn) error {
	if o.LockWait == 0 {
		return nil
	}
	return c.WaitForLock(o.LockWait)
}

// writer is the goroutine that changes the file, with its queue. Other goroutines use
// the queue, the fault and ended. The fields below the queue belong to the writer's goroutine.
type writer struct {
	mu    sync.Mutex
	queue queue
	shut  bool
	late  []lateEnd
	wake  chan struct{} // has a token while the queue has jobs, late has jobs, the log has brought entries, or shut is set
	fault atomic.Pointer[error]
	ended chan struct{} // closed when run has returned

	*names.Lookups
	opts      storeOptions
	path      string
	c         *sqlite.Conn
	readers   *readers.Pool
	disk      disk
	listeners listeners
	measures  *Measures
	watch     *watch
	done      chan struct{} // closed when the store closes
	lock      lockState
	transact  func([]op) error // makes one transaction of the jobs
	cramped   bool             // the disk had no room at the start (cramped.go)
	roomAt    time.Time        // when room was looked for last, by the real clock

	startHelpers func() error // starts the goroutines beside the writer

	batch     tx             // the present transaction
	last      relay.Position // the last committed position in the shared order
	saidAhead bool           // the log says that last is ahead of the clock
	ordered   bool           // last comes from a shared log: rows that are local, or of a node's own, do not count
	lastLocal relay.Position // the last committed position of a local row
	cachedAt  int64          // PRAGMA data_version when the rooms were told to forget

	foreign     foreign
	checkpoints checkpoints
	log         sharedLog // nil: the file is its own log

	table   *table
	mechaOf func(relay.KeyNumber) relay.MechaNumber // whose turn in the queue the writes of a key take
	rooms   []room
	tasks   []background // of the rooms, and the writer's own
	idle    bool         // no job waits: what is due gets a transaction of its own
	joining []op         // jobs that the rooms add to the next transaction
}

func newWriter(o storeOptions, path string, l *names.Lookups) *writer {
	most := maxBatch
	if !o.Serve {
		most = commandBatch
	}
	w := &writer{
		queue: newQueue(most, maxBatchBytes), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		Lookups: l, opts: o, path: path, measures: newMeasures(), done: make(chan struct{}),
		disk: disk{folder: filepath.Dir(path), floor: o.MinFreeDisk, log: o.Logger},
	}
	w.readers = readers.New(readers.Waits{Keys: w.measures.KeyWait, Points: w.measures.PointWait, Scans: w.measures.ScanWait}, w.done)
	w.watch = newWatch(w, path)
	w.transact = w.attempt
	w.foreign = foreign{w: w, readers: w.readers}
	w.checkpoints = newCheckpoints(w, w.readers)
	w.tasks = []background{&w.foreign, &w.disk, &w.checkpoints}
	return w
}

// has gives the writer its rooms, in their order, and its writes. It is called once, before the
// writer starts.
func (w *writer) has(rooms []room, t *table) {
	w.table = t
	for _, r := range rooms {
		w.add(r)
	}
}

// add adds a room to those that are there. Only Open may call it.
func (w *writer) add(r room) {
	w.rooms, w.tasks = append(w.rooms, r), append(w.tasks, r)
}

// enqueue queues a job of a Mecha; 0 is the relay itself. The writer calls the job's
// finish once the job is durable or refused. If the queue takes no more, enqueue calls
// finish itself.
func (w *writer) enqueue(j job, of relay.MechaNumber) {
	if w.log != nil && j.shared() != nil {
		w.log.Enqueue(j, of)
		return
	}
	var err error
	w.mu.Lock()
	if w.shut {
		err = readers.ErrShuttingDown()
	} else {
		err = w.queue.Add(of, j.size(), op{job: j})
	}
	w.mu.Unlock()
	if err != nil {
		j.finish(err)
		return
	}
	w.signal()
}

// signal wakes the writer.
func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// A lateEnd is a job that the log has not taken, or not in time.
type lateEnd struct {
	job job
	err error
}

// finishLater has the writer's goroutine finish a job with an error. Safe for concurrent use.
func (w *writer) finishLater(j job, err error) {
	w.mu.Lock()
	w.late = append(w.late, lateEnd{j, err})
	w.mu.Unlock()
	w.signal()
}

// finishLate finishes the jobs that finishLater was given.
func (w *writer) finishLate() {
	w.mu.Lock()
	late := w.late
	w.late = nil
	w.mu.Unlock()
	for _, l := range late {
		l.job.finish(l.err)
	}
}

// stop refuses further jobs; run returns when the queue is empty.
func (w *writer) stop() {
	w.mu.Lock()
	w.shut = true
	w.mu.Unlock()
	w.signal()
}

// failed gives the fault after which nothing is written; nil if there was none.
func (w *writer) failed() error {
	if p := w.fault.Load(); p != nil {
		return *p
	}
	return nil
}

// fail marks the store as unusable and calls Options.Fatal, once.
func (w *writer) fail(err error) {
	err = file.Explain(w.path, err)
	if w.fault.CompareAndSwap(nil, &err) {
		w.opts.Logger.Error("the store has failed; the process must stop", "error", err)
		if w.opts.Fatal != nil {
			w.opts.Fatal(err)
		}
	}
}

// run is the writer's goroutine.
func (w *writer) run() {
	defer close(w.ended)
	tick := time.NewTicker(tasksEvery)
	defer tick.Stop()
	for {
		w.gather()
		ops, shut := w.take()
		var entries []op
		if w.log != nil {
			entries = w.log.Take()
		}
		w.finishLate()
		if len(ops) == 0 && shut {
			for _, r := range w.rooms {
				r.Flush()
			}
			return
		}
		if len(ops) == 0 && len(entries) == 0 {
			select {
			case <-w.wake:
			case <-tick.C:
				w.runTasks(true)
			}
			continue
		}
		w.runTasks(false) // before every transaction, so that tasks also run under load
		began := time.Now()
		if ops = append(ops, w.joined()...); len(ops) > 0 {
			w.commit(ops)
		}
		w.reuse(ops)
		if len(entries) > 0 {
			w.log.Apply(entries)
		}
		if w.queued() > 0 {
			w.rest(time.Since(began))
		}
	}
}

// runTasks does the work that is due. idle says that no transaction of jobs follows.
func (w *writer) runTasks(idle bool) {
	if w.cramped && !w.findRoom() {
		return
	}
	now := w.opts.Now()
	w.idle = idle
	for _, b := range w.tasks {
		if b.Due(now) {
			b.Do(now)
		}
	}
}

// join adds a job to the transaction that follows. Only a Do may call it, and not while the
// writer is idle.
func (w *writer) join(j job) { w.joining = append(w.joining, op{job: j}) }

// joined takes the jobs that join was given.
func (w *writer) joined() []op {
	ops := w.joining
	w.joining = w.joining[:0]
	return ops
}

// gather yields the processor to goroutines that are about to queue a job, as long as
// that brings more jobs: a transaction costs each job less if it has more of them. The
// writer does not wait: if no other goroutine is ready to run, yielding returns at once.
func (w *writer) gather() {
	before := w.queued()
	for i := 0; i < gatherRounds && before > 0 && before < maxBatch; i++ {
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
	return len(w.queue.Items())
}

// take takes the jobs of the next transaction from the queue.
func (w *writer) take() (ops []op, shut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.Take(), w.shut
}

func (w *writer) reuse(ops []op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.Reuse(ops)
}

// rest leaves the write lock to a server for as long as a command had it. Without that,
// a server that waits for the lock would seldom find it free.
func (w *writer) rest(had time.Duration) {
	if !w.opts.Serve {
		time.Sleep(min(had, mostRest))
	}
}

// doNow makes a transaction of one chore. Only the writer's goroutine may call it.
func (w *writer) doNow(c chore, done func(error)) {
	w.commit([]op{{job: &choreJob{c, done}}})
}

// commitRows makes a transaction of the rows that the rooms add.
func (w *writer) commitRows() { w.commit(nil) }

// mayWrite reports whether rows that can wait may be written.
func (w *writer) mayWrite() bool { return w.failed() == nil && !w.disk.low.Load() }

// logged gives a done function for the store's own chores: it logs an error, since no
// caller waits for it.
func (w *writer) logged(fault string) func(error) {
	return func(err error) {
		if err != nil {
			w.opts.Logger.Error(fault, "error", err)
		}
	}
}
