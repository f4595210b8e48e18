// Package retention is the room that removes: messages by their age, by a command, or when they have
// expired, and later what they leave behind: words, keys, Mechas, conversations.
//
// It runs on the writer's goroutine, and works only in a server.
package retention

import (
	"time"

	"relay/db/internal/answers"
	"relay/db/internal/dictionary"
	"relay/db/internal/directory"
	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/progress"
	"relay/db/internal/replays"
	"relay/db/internal/sending"
	"relay/db/relay"
)

// The removal of messages (PROTOCOL §8) is done by writes and local writes that each do a
// little, the pieces. While others write, a piece joins their transaction, so that it
// needs no fsync of its own, and a rest follows. While nobody writes, the pieces have
// transactions of their own. This file decides what is removed when. The pieces
// themselves are in prune_sql.go, prune_unused_sql.go, space_sql.go and package mailbox.

const (
	runsPerAge  = 24 // runs in the time for which messages are kept
	maxInterval = time.Hour
	shareOfDue  = 10                     // a run removes at most this part of what is due, by the time that it spans
	secondLook  = time.Minute            // messages that had to stay are examined again when they are older by this
	quietAfter  = 100 * time.Millisecond // after so long without other writes, pieces get their own transactions,
	quietPieces = 100 * time.Millisecond // for so long in a row
	// a piece that joins others is followed by a rest that is so many times as long,
	restAfter    = 4
	restBehind   = 1                    // or so many, if new messages get old faster than they are removed
	busyPiece    = 2 * time.Millisecond // how long a piece that joins others should take
	quietPiece   = 5 * time.Millisecond // how long a piece with its own transaction should take
	minPiece     = 16                   // messages in a piece
	maxPiece     = 256                  // likewise
	unusedAtOnce = 200                  // rows of each table that a PruneUnused examines
	unusedEvery  = time.Minute
	// emptyForKeeper is how long what removed messages leave behind stays if messages are
	// not removed by their age.
	emptyForKeeper = 30 * 24 * time.Hour
	retryAfter     = time.Second // after a piece that failed
	sayEvery       = time.Minute
	auditEvery     = time.Hour
)

// Retention removes messages, on the writer's goroutine. It works only in a server.
type Retention struct {
	engine.Quiet
	w          *engine.Store
	dictionary *dictionary.Dictionary
	directory  *directory.Directory
	answers    *answers.Answers
	lessons    Lessons
	mailbox    *mailbox.Mailbox
	progress   *progress.Progress
	replays    *replays.Replays
	sending    *sending.Sending
	keep       time.Duration                     // the age at which messages are removed; 0 means never
	running    func(now time.Time) time.Duration // the time since the start, even if the clock is set
	clock      clockGuard
	passes     []*pass
	asks       requests
	cleaner    mailbox.MailboxCleaner
	space      space
	unused     *relay.PruneUnused // the next write of its kind, or nil
	pushes     relay.Position     // notes of pushes before this position are to be deleted; 0 means none

	nextRun    time.Duration // in the running time, as the three below
	nextUnused time.Duration
	nextNote   time.Duration // of the clock
	nextAudit  time.Duration
	emptyFor   time.Duration // how long a conversation without messages is kept

	pieceSize int       // messages in a piece
	others    time.Time // when others wrote last, by the real clock, as the two below
	restUntil time.Time
	said      time.Time
	toSay     relay.Pruned  // removals that are not logged yet
	toAudit   relay.Pruned  // removals by age that are not in the audit log yet
	took      time.Duration // of the last piece
	proposed  bool          // a piece is in the log
	ending    bool          // the log will be closed: no further piece begins
	settled   chan struct{} // then closed once the last piece is in the log; else nil
	goal      time.Duration // how long a piece should take; 0 after a failed one
}

// A pass is a walk through the messages that may be due, in their order, from run to run.
type pass struct {
	expired bool          // walks through expired messages, by ExpiresAt; else through all, by age
	age     time.Duration // how old a message must be, or how long ago it must have expired
	upto    time.Time     // everything earlier was examined
	target  time.Time     // the present run examines everything earlier; zero if nothing is left to do
	after   relay.Position
	afterAt time.Time // the ExpiresAt of the message at after
	// catchesUp says that more is due than one run removes.
	catchesUp bool
	// again says that each run begins with the first message, since few messages are left
	// that had to stay.
	again bool
}

// New makes the room. Messages are removed when they are older than keep, and when they
// have been expired for keepExpired; 0 means never.
func New(w *engine.Store, keep, keepExpired time.Duration, words *dictionary.Dictionary, d *directory.Directory,
	m *mailbox.Mailbox, used *replays.Replays, p *progress.Progress, s *sending.Sending, a *answers.Answers,
	l Lessons) *Retention {
	r := &Retention{w: w, keep: keep, running: used.Used.Elapsed,
		dictionary: words, directory: d, mailbox: m, replays: used, progress: p, sending: s, answers: a, lessons: l,
		clock: clockGuard{log: w.Opts.Logger}, pieceSize: minPiece, cleaner: mailbox.MailboxCleaner{W: w}}
	r.walk(keep, false)
	r.walk(keepExpired, true)
	if r.emptyFor = keep; r.emptyFor == 0 {
		r.emptyFor = emptyForKeeper
	}
	return r
}

// walk adds the passes for an age, unless it is 0. The later passes find the messages that
// had to stay for a moment, or for their Idempotency-Keys. The last pass finds all of
// these.
func (r *Retention) walk(age time.Duration, expired bool) {
	if age == 0 {
		return
	}
	ages := []time.Duration{age, age + secondLook}
	if age < sending.IdempotencyWindow {
		ages = append(ages, sending.IdempotencyWindow+secondLook)
	}
	for i, a := range ages {
		r.passes = append(r.passes, &pass{expired: expired, age: a, again: i == len(ages)-1})
	}
}

// works reports whether this process removes messages.
func (r *Retention) works() bool { return r.w.Opts.Serve }

func (r *Retention) Due(time.Time) bool { return r.works() }

// join adds a piece to the jobs of the next transaction, if one is due.
func (r *Retention) join() {
	r.others = time.Now()
	if r.others.Before(r.restUntil) {
		return
	}
	r.goal = busyPiece
	if j := r.piece(r.w.Opts.Now()); j != nil && !r.proposes(j) {
		r.w.Join(j)
	}
}

// alone makes transactions of pieces for a moment, if others do not write.
func (r *Retention) alone() {
	began := time.Now()
	if began.Sub(r.others) < quietAfter || began.Before(r.restUntil) {
		return
	}
	r.goal = quietPiece
	for time.Since(began) < quietPieces && r.w.Queued() == 0 && r.w.Failed() == nil {
		j := r.piece(r.w.Opts.Now())
		if j == nil || r.proposes(j) {
			return
		}
		r.w.Commit([]engine.QueuedJob{{Job: j}})
		if r.goal == 0 { // it has failed
			return
		}
	}
}

// proposes hands a piece to the log, and returns true, if it is a write and there is a log.
// The next piece follows only after it has ended.
func (r *Retention) proposes(j engine.Job) bool {
	r.proposed = r.w.Log != nil && j.Shared() != nil
	return r.proposed && r.w.Proposes(j)
}

// piece returns the next piece of work, or nil. The order matters: rows of mailboxes are
// deleted before more messages, and the file is shortened after that.
func (r *Retention) piece(now time.Time) engine.Job {
	if r.proposed || r.ending {
		return nil
	}
	running := r.running(now)
	asked := r.nextAsked()
	switch {
	case r.cleaner.Due(running):
		return r.unlistPiece()
	case asked != nil && !asked.target.IsZero():
		return r.prunePiece(&asked.pass, asked, now)
	}
	for _, p := range r.passes {
		if !p.target.IsZero() {
			return r.prunePiece(p, nil, now)
		}
	}
	r.say()
	switch {
	case r.unused != nil:
		return r.unusedPiece(now)
	case r.pushes != 0:
		return r.pushPiece()
	case asked != nil: // its pass has ended, and its leftovers are removed
		if j := r.spacePiece(asked); j != nil {
			return j
		}
		r.answer(asked)
		return r.piece(now)
	case running >= r.nextAudit && r.mustAudit():
		return r.auditPiece(now, running)
	case running >= r.nextNote:
		return r.clockPiece(now, running)
	case running >= r.nextRun:
		return r.begin(now, running)
	}
	return r.spacePiece(nil)
}

// every returns the time between two runs, short compared to the shortest age.
func (r *Retention) every() time.Duration {
	every := maxInterval
	for _, p := range r.passes {
		every = min(every, p.age/runsPerAge)
	}
	return max(every, engine.TasksEvery)
}

// begin begins a run, unless the clock is in doubt, and returns its first piece.
func (r *Retention) begin(now time.Time, running time.Duration) engine.Job {
	every := r.every()
	r.nextRun = running + every
	if len(r.passes) == 0 {
		return nil
	}
	due, believed := false, r.clock.believes(now, running)
	for _, p := range r.passes {
		oldest, err := r.oldestOf(p)
		if err != nil {
			r.w.Opts.Logger.Error("cannot look for messages to remove", "error", err)
			return nil
		}
		due = p.begin(now, oldest, every) || due
		if !believed {
			p.target = time.Time{}
		}
	}
	if !believed {
		if due {
			r.clock.refuse(now, running)
		}
		return nil
	}
	keeps := r.w.Keeps()
	if !keeps { // another node removes the messages
		for _, p := range r.passes {
			p.target = time.Time{}
		}
		due = false
	}
	if r.keep > 0 {
		r.pushes = relay.PositionAt(r.passes[0].end(now))
	}
	if keeps && running >= r.nextUnused {
		r.nextUnused = running + max(every, unusedEvery)
		r.unused = &relay.PruneUnused{EmptySince: now.Add(-r.emptyFor), Limit: unusedAtOnce}
	}
	if !due && r.unused == nil && r.pushes == 0 {
		return nil
	}
	return r.piece(now)
}

// end returns the time up to which the pass comes in the run that begins now.
func (p *pass) end(now time.Time) time.Time {
	if !p.target.IsZero() {
		return p.target
	}
	return now.Add(-p.age) // no due message is left to examine
}

// begin sets the target of a run. oldest is the time of the first message, or zero. A run
// removes a share of what is due: so a wrong clock that is nevertheless believed does not
// remove everything at once.
func (p *pass) begin(now, oldest time.Time, every time.Duration) (due bool) {
	end := now.Add(-p.age)
	if oldest.IsZero() || !oldest.Before(end) {
		return false
	}
	from := oldest
	if p.upto.After(from) {
		from = p.upto
	}
	step := max(2*every, end.Sub(from)/shareOfDue)
	if p.catchesUp = from.Add(step).Before(end); p.catchesUp {
		end = from.Add(step)
	}
	if !end.After(from) {
		return false
	}
	p.target = end
	if p.again {
		p.after, p.afterAt = 0, time.Time{}
	}
	return true
}

// done notes the outcome of a write of the pass.
func (p *pass) done(out relay.Pruned) {
	if out.After != 0 {
		p.after, p.afterAt = out.After, out.ExpiredAfter
	}
	if !out.More {
		p.upto, p.target = p.target, time.Time{}
	}
}

// prunePiece makes the next write of a pass. asked is nil unless the pass is a command's.
func (r *Retention) prunePiece(p *pass, asked *pruneRun, now time.Time) engine.Job {
	w := &relay.PruneMessages{At: now, After: p.after, Limit: r.pieceSize}
	if p.expired {
		w.ExpiredAfter, w.ExpiredBefore = p.afterAt, p.target
	} else {
		w.Before = relay.PositionAt(p.target)
	}
	return timed(r, w, func(out relay.Pruned, err error) {
		defer r.settle()
		if !r.pieceEnded(err) {
			return
		}
		switch {
		case r.took > r.goal:
			r.pieceSize = max(r.pieceSize/2, minPiece)
		case r.took < r.goal/2:
			r.pieceSize = min(r.pieceSize*2, maxPiece)
		}
		p.done(out)
		r.w.Measures.Removed.Add(int64(out.Messages))
		r.toSay.Messages, r.toSay.Bytes = r.toSay.Messages+out.Messages, r.toSay.Bytes+out.Bytes
		if asked == nil {
			r.toAudit.Messages, r.toAudit.Bytes = r.toAudit.Messages+out.Messages, r.toAudit.Bytes+out.Bytes
		} else if r.addResult(asked, out, 0); p.target.IsZero() { // the command notes it in the audit log
			r.tidy(p, now)
		}
	})
}

// tidy begins the removal of what the messages of a command's pass have left behind.
func (r *Retention) tidy(p *pass, now time.Time) {
	r.unused = &relay.PruneUnused{EmptySince: now.Add(-r.emptyFor), Limit: unusedAtOnce}
	r.pushes = relay.PositionAt(p.upto)
}

func (r *Retention) unusedPiece(now time.Time) engine.Job {
	w := *r.unused
	w.At = now
	return timed(r, &w, func(out relay.PrunedUnused, err error) {
		defer r.settle()
		switch {
		case !r.pieceEnded(err):
		case out.More:
			next := w
			next.Words, next.Keys, next.Mechas = out.Words, out.Keys, out.Mechas
			r.unused = &next
		default:
			r.unused = nil
		}
	})
}

func (r *Retention) unlistPiece() engine.Job {
	l := &mailbox.MailboxCleaning{U: &r.cleaner}
	return r.localJobOf(l, func() { r.cleaner.Applied(l) })
}

// localJobOf makes a piece of a local write. done is called once it is committed.
func (r *Retention) localJobOf(c engine.LocalWrite, done func()) engine.Job {
	return &engine.LocalJob{LocalWrite: &timedLocalWrite{c, r}, Done: func(err error) {
		if r.pieceEnded(err) {
			done()
		}
	}}
}

// pieceEnded takes the rest that follows a piece. It returns false if the piece failed.
func (r *Retention) pieceEnded(err error) bool {
	r.proposed = false
	switch {
	case err != nil:
		r.restUntil, r.goal = time.Now().Add(retryAfter), 0
		if relay.ErrorCode(err) == relay.DiskFull {
			r.w.Checkpoints.CopySoon = true // once copied, the log begins again, and has some room
			r.pieceSize, r.space.pages = max(r.pieceSize/2, minPiece), max(r.space.pages/2, minPages)
		} else if r.w.Failed() == nil {
			r.w.Opts.Logger.Warn("no messages were removed just now", "error", err)
		}
	case r.goal == busyPiece:
		rest := time.Duration(restAfter)
		if r.behind() {
			rest = restBehind
		}
		r.restUntil = time.Now().Add(rest * r.took)
	}
	return err == nil
}

// AfterCommit takes the messages whose removal was committed.
func (r *Retention) AfterCommit(t *engine.Tx) {
	if r.w.Opts.Serve {
		r.cleaner.Removed(r.mailbox.Removed, r.running(r.w.Opts.Now()))
	}
}

// behind reports whether a run takes longer than it should, unless it has much to catch
// up with.
func (r *Retention) behind() bool {
	if r.running(r.w.Opts.Now()) < r.nextRun {
		return false
	}
	for _, p := range r.passes {
		if !p.target.IsZero() && !p.catchesUp {
			return true
		}
	}
	return false
}
