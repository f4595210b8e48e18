package db

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
		if err := checkpoint(c); err != nil {
			d.opts.Logger.Warn("background checkpoint", "error", err)
			if isFatal(err) {
				d.w.fail(err)
			}
		}
		d.w.ckptDone <- struct{}{}
	}
}

// checkpointIfDue is called by the writer between transactions.
func (w *writer) checkpointIfDue() {
	waiting := int64(0) // NOOP only looks: two microseconds
	w.c.row(func(r *rows) { waiting = r.int(1) - r.int(2) }, "PRAGMA wal_checkpoint(NOOP)")
	switch {
	case !w.ckptRunning && waiting >= walFrames:
		w.ckptWanted <- struct{}{}
		w.ckptRunning = true
	case w.ckptRunning && waiting >= walMost:
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

func (w *writer) finishCheckpoint() {
	w.ckptRunning = false
	if err := checkpoint(w.c); err != nil && isFatal(err) {
		w.fail(err)
	}
}

// checkpoint copies as much of the log as readers allow, without waiting for anyone.
func checkpoint(c *conn) error {
	_, err := c.row(nil, "PRAGMA wal_checkpoint(PASSIVE)")
	return err
}
