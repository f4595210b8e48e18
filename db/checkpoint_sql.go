package db

import (
	"fmt"
	"time"
)

// The write-ahead log is copied back into the database by a goroutine of its
// own, on its own connection, while the writer goes on (PASSIVE: nobody waits).
// What is left then is little, and the writer copies it itself between two
// transactions, after which SQLite starts the log from its beginning. So the
// log stays near walFrames and no commit waits for a whole checkpoint.
// A writer that outruns the disk waits, before the log gets out of hand.
const (
	walFrames = 1000 // pages of 8 KiB that may wait to be copied
	walMost   = 4000 // … before the writer waits
)

// checkpointer copies, on c, when the writer asks for it, until the store closes.
func (d *DB) checkpointer(c *conn) {
	defer c.close()
	for {
		select {
		case <-d.done: // after the writer has ended: it never waits in vain
			return
		case <-d.w.ckptWanted:
		}
		if _, err := checkpoint(c); err != nil {
			d.opts.Logger.Warn("background checkpoint", "error", err)
			if isFatal(err) {
				d.w.fail(err)
			}
		}
		d.w.ckptDone <- struct{}{}
	}
}

// checkpointIfDue is called by the writer between transactions. After a fault
// it does nothing: a second fsync could hide the failure of the first.
func (w *writer) checkpointIfDue() {
	if w.failed() != nil || w.d.opts.Discard {
		return
	}
	left := notCopied(w.c)
	switch {
	case !w.ckptRunning && left >= walFrames:
		w.ckptWanted <- struct{}{}
		w.ckptRunning = true
	case w.ckptRunning && left >= walMost:
		<-w.ckptDone
		w.finishCheckpoint()
	case w.ckptRunning:
		select {
		case <-w.ckptDone:
			w.finishCheckpoint()
		default:
		}
	}
}

// copyForeign is called by the writer once a second. What another process has
// written is copied soon, however little comes after it: compact has given
// space back only then.
func (w *writer) copyForeign() {
	if !w.copySoon || w.failed() != nil || w.d.opts.Discard {
		return
	}
	if !w.ckptRunning {
		w.ckptWanted <- struct{}{}
		w.ckptRunning = true
		return
	}
	select {
	case <-w.ckptDone:
		w.copySoon = false
		w.finishCheckpoint()
	default:
	}
}

// finishCheckpoint copies what is left. Readers that overlap without a pause
// keep SQLite from starting the log anew; when it has grown through that, they
// are held back for the moment that it takes.
func (w *writer) finishCheckpoint() {
	w.ckptRunning = false
	if w.failed() != nil {
		return
	}
	frames, err := checkpoint(w.c)
	if err == nil && frames > walMost && time.Since(w.heldInVain) > holdAgain {
		held := w.d.holdReaders()
		_, err = checkpoint(w.c)
		if notCopied(w.c) > 0 {
			w.heldInVain = time.Now() // another process reads: a backup, or relay check
		}
		for _, c := range held {
			w.d.readers <- c
		}
	}
	if err != nil && isFatal(err) {
		w.fail(err)
	}
}

// holdTimeout is far longer than any read takes: a writer that gave up sooner
// would leave the log to grow, for as long as readers are slow.
const holdTimeout = 10 * time.Second

// holdAgain is how long the readers are left alone after it was of no use.
const holdAgain = 5 * time.Second

// holdReaders takes the reading connections out of use, as many as come back in
// time. A read that is under way ends first; those that follow wait.
func (d *DB) holdReaders() (held []*conn) {
	timeout := time.NewTimer(holdTimeout)
	defer timeout.Stop()
	for range readConns {
		select {
		case c := <-d.readers:
			held = append(held, c)
		case <-timeout.C:
			return held
		}
	}
	return held
}

// notCopied tells how many pages of the log are not in the database yet. It
// only looks: two microseconds.
func notCopied(c *conn) (pages int64) {
	_, _ = c.row(func(r *rows) { pages = r.int(1) - r.int(2) }, "PRAGMA wal_checkpoint(NOOP)")
	return pages
}

// checkpoint copies as much of the log as readers allow, without waiting for
// anyone, and tells how many pages the log has.
func checkpoint(c *conn) (frames int64, err error) {
	_, err = c.row(func(r *rows) { frames = r.int(1) }, "PRAGMA wal_checkpoint(PASSIVE)")
	return frames, err
}

// leave is called by the writer when one of the files has lost its name (lost
// says which). What was acknowledged since is in the log, which nobody may find
// any more: copied into the database, wherever that has gone, it is safe, and
// the emptied log can be taken for that of no other file. If another process
// has written meanwhile, perhaps into another log under the same index, a copy
// could mix the two. It gives the error to stop with.
func (w *writer) leave(lost error) error {
	if w.ckptRunning {
		<-w.ckptDone
		w.ckptRunning = false
	}
	if data, _ := w.versions(); data != w.dataVersion {
		return fmt.Errorf("%w, and another process has written since: relay check tells whether the database is whole", lost)
	}
	held, busy := w.d.holdReaders(), int64(1)
	_, err := w.c.row(func(r *rows) { busy = r.int(0) }, "PRAGMA wal_checkpoint(TRUNCATE)")
	for _, c := range held {
		w.d.readers <- c
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w; its log could not be copied into the database, which may lack the newest messages: %w", lost, err)
	case busy != 0:
		return fmt.Errorf("%w; another process kept the log from being copied into the database, which may lack the newest messages", lost)
	}
	return fmt.Errorf("%w; all that was accepted is in the database file that was open", lost)
}
