package replication

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Follower takes the entries of a log to the writer, which applies them.
type Follower struct {
	*Replication
	log      Log
	stop     context.CancelFunc
	ctx      context.Context
	ended    chan struct{}
	entries  chan []Entry  // the writer's goroutine receives them
	next     uint64        // the number of the next entry; only run uses it
	Again    time.Duration // the pause after Follow has ended by an error
	lost     bool          // it is logged that the log cannot be followed; only run uses it
	MaxBatch int           // jobs in a transaction

	// Only the writer's goroutine uses the fields below.

	waiting []Entry            // received, and not in batch
	batch   []engine.QueuedJob // the jobs of the entries that are applied next
	retry   time.Time          // not before this, if this machine could not apply batch; else zero

	stuck atomic.Pointer[error] // why this machine could not apply batch, or nil
}

const (
	entriesAhead = 16                     // how many deliveries of a log may wait for the writer
	followAgain  = 100 * time.Millisecond // the pause after Follow has ended by an error
	applyAgain   = engine.TasksEvery      // the pause after entries that could not be applied
)

func newFollower(l *Replication, log Log, applied uint64) *Follower {
	f := &Follower{Replication: l, log: log, next: applied + 1, Again: followAgain, MaxBatch: engine.MaxBatch,
		ended: make(chan struct{}), entries: make(chan []Entry, entriesAhead)}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// run follows the log until close.
func (f *Follower) run() {
	defer close(f.ended)
	for f.ctx.Err() == nil {
		err := f.log.Follow(f.ctx, f.next-1, f.Deliver)
		switch {
		case f.ctx.Err() != nil:
			return
		case errors.Is(err, ErrLogTruncated), errors.Is(err, ErrLogBehind):
			f.w.Fail(fmt.Errorf("%s, at entry %d: %w", f.w.Path, f.next-1, err))
			return
		}
		if !f.lost {
			f.lost = true
			f.w.Opts.Logger.Warn("the log cannot be followed just now", "after", f.next-1, "error", err)
		}
		select {
		case <-time.After(f.Again):
		case <-f.ctx.Done():
		}
	}
}

// close ends run. Entries that the writer has not applied are applied after the next start.
func (f *Follower) close() {
	f.stop()
	<-f.ended
}

// Deliver hands entries to the writer, and waits while the writer has enough of them. It
// leaves out entries that the writer already has. Error: a gap.
func (f *Follower) Deliver(entries []Entry) error {
	for len(entries) > 0 && entries[0].Number < f.next {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return nil
	}
	for i, e := range entries {
		if e.Number != f.next+uint64(i) {
			return fmt.Errorf("the log gave entry %d in the place of entry %d", e.Number, f.next+uint64(i))
		}
	}
	select {
	case f.entries <- entries:
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
	f.next += uint64(len(entries))
	f.w.Signal()
	if f.lost {
		f.lost = false
		f.w.Opts.Logger.Info("the log is followed again", "upto", f.next-1)
	}
	return nil
}

// take returns the jobs of the entries that are to be applied next. It returns none if
// this machine cannot apply them for now. At an entry that cannot be read the store stops,
// once all entries before it are applied: so all copies stop at the same one. Only the
// writer's goroutine may call it.
func (f *Follower) take() []engine.QueuedJob {
	if f.w.Failed() != nil || time.Now().Before(f.retry) {
		return nil
	}
	bytes := 0
	for len(f.batch) < f.MaxBatch && bytes < engine.MaxBatchBytes && f.receive() {
		e := f.waiting[0]
		jobs, err := f.jobsOf(e)
		switch {
		case err != nil && len(f.batch) > 0: // earlier entries are applied first; the next take finds it again
			return f.batch
		case err != nil:
			f.w.Fail(fmt.Errorf("%s: entry %d of the log cannot be applied: %w", f.w.Path, e.Number, err))
			return nil
		}
		f.waiting = f.waiting[1:]
		f.batch = append(f.batch, jobs...)
		bytes += len(e.Data)
	}
	return f.batch
}

// receive reports whether an entry is waiting.
func (f *Follower) receive() bool {
	if len(f.waiting) > 0 {
		return true
	}
	select {
	case f.waiting = <-f.entries:
		return true
	default:
		return false
	}
}

// jobsOf makes the jobs of an entry: one that begins it, and one for each write. The jobs
// of this node's own envelope finish the jobs that wait for it.
func (f *Follower) jobsOf(e Entry) ([]engine.QueuedJob, error) {
	env, err := ReadEnvelope(e.Data)
	if err != nil {
		return nil, err
	}
	if env.Log != f.Replica.File.Log {
		return nil, ErrOtherLog
	}
	for _, write := range env.Writes {
		if err := f.Replica.knowsRules(write); err != nil {
			return nil, err
		}
	}
	waiting := f.Propose.claim(env)
	jobs := make([]engine.QueuedJob, 0, 1+len(env.Writes))
	jobs = append(jobs, engine.QueuedJob{Job: &entryStart{f.Replica, e, env.Origin, env.Counter}})
	for i, write := range env.Writes {
		var j engine.Job
		if waiting != nil {
			j = waiting[i]
			j.(follows).Become(write)
		} else if j, err = f.w.Table.JobOf(write, ignore); err != nil {
			return nil, err
		}
		_, nonce := f.w.Table.Caller(write)
		jobs = append(jobs, engine.QueuedJob{Job: &entryWrite{Job: j, replica: f.Replica, nonce: nonce}})
	}
	return jobs, nil
}

func ignore(any, error) {}

// follows is the job of a write, of which the log has a copy.
type follows interface {
	engine.Job
	// Become replaces the write by the copy, which must be of the same kind.
	Become(relay.Write)
}

// entryStart is the job that begins an entry.
type entryStart struct {
	replica *Replica
	entry   Entry
	origin  Origin
	counter uint64
}

func (e *entryStart) Apply(*engine.Tx) error {
	e.replica.entry(e.entry.Number, e.entry.At, e.origin, e.counter)
	return nil
}

func (e *entryStart) Finish(error)        {}
func (e *entryStart) Size() int           { return 0 }
func (e *entryStart) Shared() relay.Write { return nil }

// entryWrite is the job of a write in an entry. It has the time of the entry.
type entryWrite struct {
	engine.Job
	replica *Replica
	nonce   relay.NonceHash
}

func (e *entryWrite) Apply(t *engine.Tx) (err error) {
	r := e.replica
	if r.skip {
		return nil
	}
	write := e.Shared()
	relay.SetTime(write, r.time())
	// a message checks its Idempotency-Key first
	if _, isSend := write.(*relay.SendMessage); !isSend && r.used(e.nonce) {
		err = engine.ErrNonceReused()
	} else if err = e.Job.Apply(t); err != nil && relay.ErrorCode(err) == relay.Internal {
		return err
	}
	r.wrote(e.nonce, err, t.Last)
	return err
}

// apply makes a transaction of the jobs from take. An entry is never left out: if this
// machine has no room, or another process has the lock, apply keeps the jobs for later, and
// until then this node accepts no writes for the log. After any other fault of the machine
// the store stops.
func (f *Follower) apply(jobs []engine.QueuedJob) {
	w := f.w
	err := w.Transact(jobs)
	switch {
	case err == nil:
		if !f.retry.IsZero() {
			w.Opts.Logger.Info("entries of the log are applied again", "upto", f.Replica.File.Applied)
			f.retry = time.Time{}
			f.stuck.Store(nil)
		}
	case w.Failed() == nil && mayPass(err):
		refusal := w.Explain(err) // it notes a full disk
		f.stuck.Store(&refusal)   // before the waiters learn of it, and perhaps try again
		w.Measures.Failures.Add(1)
		if f.retry.IsZero() {
			w.Opts.Logger.Warn("entries of the log cannot be applied just now", "error", err)
		}
		f.detach()
		f.retry = time.Now().Add(applyAgain)
		return
	default:
		w.Fail(fmt.Errorf("%s: entries of the log cannot be applied: %w", w.Path, err))
		err = engine.ErrUnknown("the store has failed", err)
	}
	w.Release(jobs, err)
	clear(f.batch)
	f.batch = f.batch[:0]
}

// mayPass reports whether a transaction may succeed later.
func mayPass(err error) bool {
	return errors.Is(err, engine.ErrStartedFull) || sqlite.IsDiskFull(err) || sqlite.IsBusy(err)
}

// detach tells the callers that wait for the batch that its outcome is unknown, because it may take long.
func (f *Follower) detach() {
	for i := range f.batch {
		e, ok := f.batch[i].Job.(*entryWrite)
		if !ok {
			continue
		}
		waited := e.Job
		j, err := f.w.Table.JobOf(waited.Shared(), ignore)
		if err != nil {
			continue // it was detached before
		}
		e.Job = j
		waited.Finish(engine.ErrUnknown("this node cannot write just now, but the log has the request", nil))
	}
}
