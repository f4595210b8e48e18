package engine

import (
	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Start reads the state of the writer from the file.
func (w *Store) Start() error {
	if err := w.findLast(); err != nil {
		return err
	}
	data, err := w.C.Number("PRAGMA data_version")
	if err != nil {
		return err
	}
	w.Foreign.data, w.cachedAt = data, data
	if !w.Opts.Serve {
		return nil
	}
	// The commits of a killed process are in the log, perhaps not yet synced. They must be
	// durable before the relay shows them to clients again. If the disk is full, OpenFull
	// has synced the log.
	if !w.StartedFull {
		if err := w.copyLog(); err != nil {
			return err
		}
	}
	w.logAhead()
	return nil
}

// copyLog makes the log durable: it copies the log into the database, or syncs the log if
// that is not possible. It does not wait for readers in other processes, because
// Litestream reads at all times.
func (w *Store) copyLog() error {
	held, err := w.C.CopyLog()
	if sqlite.IsDiskFull(err) {
		w.Opts.Logger.Error("the disk is full: the log was not copied into the database", "db", w.Path, "error", err)
	}
	if held && err == nil || sqlite.IsDiskFull(err) {
		return file.SyncLog(w.Path)
	}
	return err
}

// findLast reads the last position of the shared order, and the last local one.
func (w *Store) findLast() error {
	if !w.Ordered {
		last, err := file.LastPosition(w.C)
		if err != nil {
			return err
		}
		w.Last = max(w.Last, last)
	}
	for _, table := range []string{"search", "push"} {
		p, err := w.C.Number("SELECT max(position) FROM " + table)
		if err != nil {
			return err
		}
		w.lastLocal = max(w.lastLocal, relay.Position(p))
	}
	return nil
}
