package db

// The write-ahead log is copied back into the database by a goroutine of its
// own, on its own connection, while the writer goes on (PASSIVE: nobody waits).
// What is left then is little, and the writer copies it itself between two
// transactions, after which SQLite starts the log from its beginning. So the
// log stays near walTarget and no commit waits for a whole checkpoint.
const walTarget = 4 << 20 // bytes of writes, as tx.bytes counts them, between checkpoints

// checkpointer copies when the writer asks for it.
func (d *DB) checkpointer() {
	c, err := openConn(d.path, false)
	if err != nil {
		d.opts.Logger.Error("no background checkpoints: the log will only be copied by the writer", "error", err)
		return
	}
	defer c.close()
	for {
		select {
		case <-d.done:
			return
		case <-d.w.ckptWanted:
		}
		if err := checkpoint(c); err != nil {
			d.opts.Logger.Warn("background checkpoint", "error", err)
			if isFatal(err) {
				d.w.fail(err)
				return
			}
		}
		d.w.ckptDone.Store(true)
		d.w.signal()
	}
}

// checkpointIfDue is called by the writer between transactions.
func (w *writer) checkpointIfDue() {
	if w.ckptDone.CompareAndSwap(true, false) {
		w.ckptRunning, w.sinceCkpt = false, 0
		if err := checkpoint(w.c); err != nil && isFatal(err) {
			w.fail(err)
		}
	}
	if !w.ckptRunning && w.sinceCkpt >= walTarget {
		w.requestCheckpoint()
	}
}

func (w *writer) requestCheckpoint() {
	select {
	case w.ckptWanted <- struct{}{}:
		w.ckptRunning = true
	default: // the checkpointer has stopped, or is about to look
	}
}

// checkpoint copies as much of the log as readers allow, without waiting for anyone.
func checkpoint(c *conn) error {
	_, err := c.row(nil, "PRAGMA wal_checkpoint(PASSIVE)")
	return err
}
