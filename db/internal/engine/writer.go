// Package engine is what writes and reads the file of a store, without a word of what is in it:
// the queue, the one writer with its transactions, the table of writes, checkpoints, the disk,
// what other processes do to the file, and the reading transactions.
//
// A job is a write, whose effect all copies of the store share, or a local write, whose rows are
// local to this process. The writer takes all jobs that were queued during the last commit,
// applies them in one transaction, commits once (one fsync), and then calls back every waiting
// caller. A job that is refused has written nothing. A Room is what the store has for one noun;
// the writer meets it by the hooks of that interface alone, and never names one.
//
// Store and Tx belong to the writer's goroutine, except where their fields and methods say otherwise.
package engine

import (
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
	TasksEvery   = 250 * time.Millisecond // how often the writer checks for background work while no jobs come
	gatherRounds = 4                      // how often the writer yields before it takes the queue
)

// Options are the options of the store that the writer needs.
type Options struct {
	Schema      string // the text of schema.sql
	Serve       bool
	MinFreeDisk int64
	LockWait    time.Duration
	By          relay.Actor
	Now         func() time.Time
	Logger      *slog.Logger
	Fatal       func(error)
	Gate        Gate // nil: this is the only node
}

// ApplyLockWait has the writer's connection wait for the lock as long as LockWait says.
func (o *Options) ApplyLockWait(c *sqlite.Conn) error {
	if o.LockWait == 0 {
		return nil
	}
	return c.WaitForLock(o.LockWait)
}

// Store is the goroutine that changes the file, with its queue. Other goroutines use the
// queue, the fault and Ended. The fields below the queue belong to the writer's goroutine.
type Store struct {
	Mu     sync.Mutex
	Queue  Queue
	shut   bool
	failed []failedJob
	wake   chan struct{} // has a token while there are jobs or entries to take, or shut is set
	fault  atomic.Pointer[error]
	Ended  chan struct{} // closed when Run has returned

	*names.Caches
	Opts        Options
	Path        string
	C           *sqlite.Conn
	Readers     *readers.Pool
	Disk        disk
	Listeners   listeners
	Measures    *Measures
	Watch       *watch
	Done        chan struct{} // closed when the store closes
	lock        lockState
	Transact    func([]QueuedJob) error // makes one transaction of the jobs
	StartedFull bool                    // the disk had no room at the start(started_full.go)
	roomAt      time.Time               // when room was looked for last, by the real clock

	StartHelpers func() error // starts the other goroutines

	batch       Tx             // the present transaction
	Last        relay.Position // the last committed position in the shared order
	aheadLogged bool           // it is logged that Last is ahead of the clock
	Ordered     bool           // Last comes from a shared log: local rows, and rows of this node alone, do not count
	lastLocal   relay.Position // the last committed position of a local row
	cachedAt    int64          // PRAGMA data_version when the rooms were told to forget

	Foreign     foreign
	Checkpoints checkpoints
	Log         Log       // nil: the file is its own log
	Forward     func(Job) // forwards all writes to another process; nil: this process makes them

	Table   *Table
	MechaOf func(relay.KeyNumber) relay.MechaNumber // the Mecha in whose turn a key's writes are queued
	Rooms   []Room
	Tasks   []Background // of the rooms, and the writer's own
	Idle    bool         // no job waits: due work gets a transaction of its own
	joining []QueuedJob  // jobs that the rooms have added to the next transaction
}

func New(o Options, path string, l *names.Caches) *Store {
	w := &Store{
		Queue: NewQueue(MaxBatch, MaxBatchBytes), wake: make(chan struct{}, 1), Ended: make(chan struct{}),
		Caches: l, Opts: o, Path: path, Measures: newMeasures(), Done: make(chan struct{}),
		Disk: disk{Folder: filepath.Dir(path), floor: o.MinFreeDisk, log: o.Logger},
	}
	w.Readers = readers.New(readers.Waits{Keys: w.Measures.KeyWait, Points: w.Measures.PointWait,
		Scans: w.Measures.ScanWait}, w.Done)
	w.Watch = newWatch(w, path)
	w.Transact = w.tryCommit
	w.Foreign = foreign{w: w, readers: w.Readers}
	w.Checkpoints = newCheckpoints(w, w.Readers)
	w.Tasks = []Background{&w.Foreign, &w.Disk, &w.Checkpoints}
	return w
}

// Has sets the writer's rooms, in their order, and its table of writes. It is called once,
// before the writer starts.
func (w *Store) Has(rooms []Room, t *Table) {
	w.Table = t
	for _, r := range rooms {
		w.Add(r)
	}
}

// Add adds a room. Only Open may call it.
func (w *Store) Add(r Room) {
	w.Rooms, w.Tasks = append(w.Rooms, r), append(w.Tasks, r)
}

// Enqueue queues a job of a Mecha; 0 is the relay itself. The writer calls the job's
// Finish once the job is durable or refused. If the queue is full, Enqueue calls Finish
// itself.
func (w *Store) Enqueue(j Job, of relay.MechaNumber) {
	switch shared := j.Shared() != nil; {
	case shared && w.Forward != nil:
		w.Forward(j)
		return
	case shared && w.Log != nil:
		w.Log.Enqueue(j, of)
		return
	}
	var err error
	w.Mu.Lock()
	if w.shut {
		err = readers.ErrShuttingDown()
	} else {
		err = w.Queue.Add(of, j.Size(), QueuedJob{Job: j})
	}
	w.Mu.Unlock()
	if err != nil {
		j.Finish(err)
		return
	}
	w.Signal()
}

// Signal wakes the writer.
func (w *Store) Signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// A failedJob is a job that the log refused, or accepted too late.
type failedJob struct {
	job Job
	err error
}

// FinishLater has the writer's goroutine finish a job with an error. Any goroutine may call it.
func (w *Store) FinishLater(j Job, err error) {
	w.Mu.Lock()
	w.failed = append(w.failed, failedJob{j, err})
	w.Mu.Unlock()
	w.Signal()
}

// finishFailed finishes the jobs that FinishLater was given.
func (w *Store) finishFailed() {
	w.Mu.Lock()
	late := w.failed
	w.failed = nil
	w.Mu.Unlock()
	for _, l := range late {
		l.job.Finish(l.err)
	}
}

// Stop refuses further jobs; Run returns when the queue is empty.
func (w *Store) Stop() {
	w.Mu.Lock()
	w.shut = true
	w.Mu.Unlock()
	w.Signal()
}

// Failed returns the fault after which nothing is written, or nil.
func (w *Store) Failed() error {
	if p := w.fault.Load(); p != nil {
		return *p
	}
	return nil
}

// Fail marks the store as unusable and calls Options.Fatal, once.
func (w *Store) Fail(err error) {
	err = file.Explain(w.Path, err)
	if w.fault.CompareAndSwap(nil, &err) {
		w.Opts.Logger.Error("the store has failed; the process must stop", "error", err)
		if w.Opts.Fatal != nil {
			w.Opts.Fatal(err)
		}
	}
}

// Run is the writer's goroutine.
func (w *Store) Run() {
	defer close(w.Ended)
	tick := time.NewTicker(TasksEvery)
	defer tick.Stop()
	for {
		w.gather()
		jobs, shut := w.take()
		var entries []QueuedJob
		if w.Log != nil {
			entries = w.Log.Take()
		}
		w.finishFailed()
		if len(jobs) == 0 && shut {
			for _, r := range w.Rooms {
				r.Flush()
			}
			return
		}
		if len(jobs) == 0 && len(entries) == 0 {
			select {
			case <-w.wake:
			case <-tick.C:
				w.runTasks(true)
			}
			continue
		}
		w.runTasks(false) // before every transaction, so that tasks also run under load
		if jobs = append(jobs, w.joined()...); len(jobs) > 0 {
			w.Commit(jobs)
		}
		w.reuse(jobs)
		if len(entries) > 0 {
			w.Log.Apply(entries)
		}
	}
}

// runTasks does the background work that is due. idle says that no transaction of jobs follows.
func (w *Store) runTasks(idle bool) {
	if w.StartedFull && !w.findRoom() {
		return
	}
	now := w.Opts.Now()
	w.Idle = idle
	for _, b := range w.Tasks {
		if b.Due(now) {
			b.Do(now)
		}
	}
}

// Join adds a job to the transaction that follows. Only a Do may call it, and not while the
// writer is idle.
func (w *Store) Join(j Job) { w.joining = append(w.joining, QueuedJob{Job: j}) }

// joined takes the jobs that Join was given.
func (w *Store) joined() []QueuedJob {
	jobs := w.joining
	w.joining = w.joining[:0]
	return jobs
}

// gather yields the processor to goroutines that are about to queue a job, as long as
// that brings more jobs: a transaction costs each job less if it has more of them. The
// writer does not wait: if no other goroutine is ready to run, yielding returns at once.
func (w *Store) gather() {
	before := w.Queued()
	for i := 0; i < gatherRounds && before > 0 && before < MaxBatch; i++ {
		runtime.Gosched()
		now := w.Queued()
		if now == before {
			return
		}
		before = now
	}
}

func (w *Store) Queued() int {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return len(w.Queue.Items())
}

// take takes the jobs of the next transaction from the queue.
func (w *Store) take() (jobs []QueuedJob, shut bool) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.Queue.Take(), w.shut
}

func (w *Store) reuse(jobs []QueuedJob) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.Queue.Reuse(jobs)
}

// DoNow makes a transaction of one local write. Only the writer's goroutine may call it.
func (w *Store) DoNow(c LocalWrite, done func(error)) {
	w.Commit([]QueuedJob{{Job: &LocalJob{c, done}}})
}

// CommitRows makes a transaction of the rows that the rooms add.
func (w *Store) CommitRows() { w.Commit(nil) }

// MayWrite reports whether rows that can wait may be written.
func (w *Store) MayWrite() bool { return w.Failed() == nil && !w.Disk.Low.Load() }

// Logged returns a done function for the store's own local writes: it logs an error,
// since no caller waits for it.
func (w *Store) Logged(fault string) func(error) {
	return func(err error) {
		if err != nil {
			w.Opts.Logger.Error(fault, "error", err)
		}
	}
}
