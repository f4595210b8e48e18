package db

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// follower takes the entries of a log to the writer, which applies them.
type follower struct {
	*replication
	log     Log
	stop    context.CancelFunc
	ctx     context.Context
	ended   chan struct{}
	entries chan []LogEntry // the writer's goroutine receives them
	next    uint64          // the number of the next entry; only run uses it
	again   time.Duration   // the pause after Follow has ended by an error
	lost    bool            // that the log cannot be followed is logged; only run uses it
	most    int             // ops in a transaction

	// Only the writer's goroutine uses the fields below.

	waiting []LogEntry // received, and not in batch
	batch   []op       // the ops of the entries that are applied next
	retry   time.Time  // not before this, because this machine could not apply batch; zero: it could

	stuck atomic.Pointer[error] // why this machine could not apply batch; nil: it could
}

const (
	entriesAhead = 16                     // how many deliveries of a log may wait for the writer
	followAgain  = 100 * time.Millisecond // the pause after Follow has ended by an error
	applyAgain   = tasksEvery             // the pause after entries that could not be applied
)

func newFollower(l *replication, log Log, applied uint64) *follower {
	f := &follower{replication: l, log: log, next: applied + 1, again: followAgain, most: maxBatch, ended: make(chan struct{}), entries: make(chan []LogEntry, entriesAhead)}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// run follows the log until close.
func (f *follower) run() {
	defer close(f.ended)
	for f.ctx.Err() == nil {
		err := f.log.Follow(f.ctx, f.next-1, f.deliver)
		switch {
		case f.ctx.Err() != nil:
			return
		case errors.Is(err, ErrLogTruncated), errors.Is(err, ErrLogBehind):
			f.w.fail(fmt.Errorf("%s, at entry %d: %w", f.w.path, f.next-1, err))
			return
		}
		if !f.lost {
			f.lost = true
			f.w.opts.Logger.Warn("the log cannot be followed just now", "after", f.next-1, "error", err)
		}
		select {
		case <-time.After(f.again):
		case <-f.ctx.Done():
		}
	}
}

// close ends run. Entries that the writer has not applied are applied after the next start.
func (f *follower) close() {
	f.stop()
	<-f.ended
}

// deliver hands entries to the writer, and waits while the writer has enough of them. It
// leaves out those that the writer has already. Error: a gap.
func (f *follower) deliver(entries []LogEntry) error {
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
	f.w.signal()
	if f.lost {
		f.lost = false
		f.w.opts.Logger.Info("the log is followed again", "upto", f.next-1)
	}
	return nil
}

// take gives the ops of the entries that are to be applied next; none if
// this machine cannot apply them for now. At an entry that cannot be read the store stops,
// once all entries before it are applied: so all copies stop at the same one. Only the
// writer's goroutine may call it.
func (f *follower) take() []op {
	if f.w.failed() != nil || time.Now().Before(f.retry) {
		return nil
	}
	bytes := 0
	for len(f.batch) < f.most && bytes < maxBatchBytes && f.receive() {
		e := f.waiting[0]
		ops, err := f.opsOf(e)
		switch {
		case err != nil && len(f.batch) > 0: // those before it are applied first, and the next take finds it again
			return f.batch
		case err != nil:
			f.w.fail(fmt.Errorf("%s: entry %d of the log cannot be applied: %w", f.w.path, e.Number, err))
			return nil
		}
		f.waiting = f.waiting[1:]
		f.batch = append(f.batch, ops...)
		bytes += len(e.Data)
	}
	return f.batch
}

// receive tells whether an entry is waiting.
func (f *follower) receive() bool {
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

// opsOf makes the ops of an entry: one that begins it, and one for each write. Those of an
// envelope of this node finish the jobs that wait for it.
func (f *follower) opsOf(e LogEntry) ([]op, error) {
	env, err := readEnvelope(e.Data)
	if err != nil {
		return nil, err
	}
	if env.log != f.replica.file.Log {
		return nil, errOtherLog
	}
	for _, write := range env.writes {
		if err := f.replica.knowsRules(write); err != nil {
			return nil, err
		}
	}
	waiting := f.propose.claim(env)
	ops := make([]op, 0, 1+len(env.writes))
	ops = append(ops, op{job: &entryStart{f.replica, e, env.origin, env.counter}})
	for i, write := range env.writes {
		var j job
		if waiting != nil {
			j = waiting[i]
			j.(follows).become(write)
		} else if j, err = f.w.table.jobOf(write, ignore); err != nil {
			return nil, err
		}
		_, nonce := f.w.table.caller(write)
		ops = append(ops, op{job: &entryWrite{job: j, replica: f.replica, nonce: nonce}})
	}
	return ops, nil
}

func ignore(any, error) {}

// follows is the job of a write, of which the log has a copy.
type follows interface {
	job
	// become puts the copy in the place of the write, which must be of the same kind.
	become(relay.Write)
}

// entryStart is the op that begins an entry.
type entryStart struct {
	replica *replica
	entry   LogEntry
	origin  origin
	counter uint64
}

func (e *entryStart) apply(*tx) error {
	e.replica.entry(e.entry.Number, e.entry.At, e.origin, e.counter)
	return nil
}

func (e *entryStart) finish(error)        {}
func (e *entryStart) size() int           { return 0 }
func (e *entryStart) shared() relay.Write { return nil }

// entryWrite is the op of a write in an entry. It has the time of the entry.
type entryWrite struct {
	job
	replica *replica
	nonce   relay.NonceHash
}

func (e *entryWrite) apply(t *tx) (err error) {
	r := e.replica
	if r.skip {
		return nil
	}
	write := e.shared()
	relay.SetTime(write, r.time())
	if _, isSend := write.(*relay.SendMessage); !isSend && r.used(e.nonce) { // a message looks at its Idempotency-Key first
		err = errNonceReused()
	} else if err = e.job.apply(t); err != nil && relay.ErrorCode(err) == relay.Internal {
		return err
	}
	r.wrote(e.nonce, err, t.last)
	return err
}

// apply makes a transaction of the ops that take gave. An entry is never left out: if
// this machine has no room, or another process has the lock, apply keeps the ops for
// later, and until then this node takes no writes for the log. After any other fault of the
// machine the store stops.
func (f *follower) apply(ops []op) {
	w := f.w
	err := w.transact(ops)
	switch {
	case err == nil:
		if !f.retry.IsZero() {
			w.opts.Logger.Info("entries of the log are applied again", "upto", f.replica.file.Applied)
			f.retry = time.Time{}
			f.stuck.Store(nil)
		}
	case w.failed() == nil && mayPass(err):
		refusal := w.explain(err) // it notes a full disk
		f.stuck.Store(&refusal)   // before the waiters learn of it, and perhaps try again
		w.measures.Failures.Add(1)
		if f.retry.IsZero() {
			w.opts.Logger.Warn("entries of the log cannot be applied just now", "error", err)
		}
		f.detach()
		f.retry = time.Now().Add(applyAgain)
		return
	default:
		w.fail(fmt.Errorf("%s: entries of the log cannot be applied: %w", w.path, err))
		err = errUnknown("the store has failed", err)
	}
	w.release(ops, err)
	clear(f.batch)
	f.batch = f.batch[:0]
}

// mayPass tells whether a transaction can be made again later, with another outcome.
func mayPass(err error) bool {
	return errors.Is(err, errCramped) || sqlite.IsDiskFull(err) || sqlite.IsBusy(err)
}

// detach tells those who wait for the batch that its outcome is unknown: it may take long.
func (f *follower) detach() {
	for i := range f.batch {
		e, ok := f.batch[i].job.(*entryWrite)
		if !ok {
			continue
		}
		waited := e.job
		j, err := f.w.table.jobOf(waited.shared(), ignore)
		if err != nil {
			continue // it was made of such a job before
		}
		e.job = j
		waited.finish(errUnknown("this node cannot write just now, but the log has the request", nil))
	}
}

// errUnknown is the error for a write that the log may have. why is the beginning of its
// sentence; cause may be nil.
func errUnknown(why string, cause error) error {
	return &relay.Error{Code: relay.StoreFailed, Detail: why + "; whether it was written is unknown", Cause: cause}
}
