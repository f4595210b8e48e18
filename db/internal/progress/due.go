package progress

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

const (
	dueAtOnce = 500 // messages in one transaction, because other jobs wait for it
	dueRounds = 4   // transactions in a row, before other jobs have their turn
)

// dueTimes acts on messages when their times have come. An index in the file has the
// times; dueTimes knows the earliest one. So future times cost no memory and no CPU, and
// a start finds past ones.
type dueTimes struct {
	w        *engine.Store
	earliest string // the query for the earliest time
	// act makes the write that acts on due messages.
	act   func(now time.Time, done func(NextDue, error)) engine.Job
	fault string // the line in the log if act fails
	next  int64  // the earliest known time, in Unix ms, or 0

	// With a log, act's write goes through the log:

	proposed bool      // and is pending
	heard    int64     // the earliest time passed to expect meanwhile, in Unix ms, or 0
	rest     time.Time // not before this, because the log's clock is behind this one's
}

// NextDue is the earliest time that has not come, in Unix ms, or 0.
type NextDue int64

func newExpiry(w *engine.Store) dueTimes {
	return dueTimes{w: w, earliest: earliestExpiry, fault: "messages did not expire", act: func(
		now time.Time, done func(NextDue, error),
	) engine.Job {
		return engine.WriteJobOf(w.Table, &relay.ExpireDue{At: now}, done)
	}}
}

func newOverdue(w *engine.Store) dueTimes {
	return dueTimes{w: w, earliest: earliestAckBy, fault: "senders were not told that messages are overdue", act: func(
		now time.Time, done func(NextDue, error),
	) engine.Job {
		return engine.WriteJobOf(w.Table, &relay.NoteOverdue{At: now}, done)
	}}
}

func newReturns(w *engine.Store, maxAttempts int) dueTimes {
	return dueTimes{w: w, earliest: earliestReturn, fault: "messages that workers held, or that were deferred, " +
		"were not redelivered", act: func(now time.Time, done func(NextDue, error)) engine.Job {
		return engine.WriteJobOf(w.Table, &relay.EndAttempts{At: now, MaxAttempts: maxAttempts}, done)
	}}
}

// start finds the earliest time.
func (d *dueTimes) start() (err error) {
	d.next, err = d.w.C.Number(d.earliest)
	return err
}

// expect notes a time in Unix ms, unless 0.
func (d *dueTimes) expect(ms int64) {
	if ms == 0 {
		return
	}
	if d.next == 0 || ms < d.next {
		d.next = ms
	}
	if d.proposed && (d.heard == 0 || ms < d.heard) {
		d.heard = ms
	}
}

func (d *dueTimes) Due(now time.Time) bool { return d.next != 0 && now.UnixMilli() >= d.next }

func (d *dueTimes) Do(now time.Time) {
	if d.w.Log != nil {
		d.propose()
		return
	}
	for i := 0; i < dueRounds && d.Due(now); i++ {
		failed := false
		d.w.Commit([]engine.QueuedJob{{Job: d.act(now, func(next NextDue, err error) {
			if failed = err != nil; failed {
				d.w.Opts.Logger.Error(d.fault, "error", err)
				return
			}
			d.next = int64(next)
		})}})
		if failed {
			return
		}
	}
}

// propose proposes the write that acts on due messages, if this node issues maintenance
// writes and none is pending.
func (d *dueTimes) propose() {
	now := time.Now()
	if d.proposed || now.Before(d.rest) || !d.w.Keeps() {
		return
	}
	d.proposed, d.heard = true, 0
	d.w.Proposes(d.act(d.w.Opts.Now(), func(next NextDue, err error) {
		d.proposed, d.rest = false, now.Add(engine.TasksEvery)
		if err != nil {
			d.w.Opts.Logger.Error(d.fault, "error", err)
			return
		}
		d.next = int64(next)
		if d.next <= d.w.Log.Time() { // more are due by the log's time
			d.rest = time.Time{}
		}
		d.expect(d.heard)
	}))
}
