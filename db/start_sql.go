package db

import (
	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// start reads the state of the writer from the file.
func (w *writer) start() error {
	if err := w.findLast(); err != nil {
		return err
	}
	data, err := w.c.Number("PRAGMA data_version")
	if err != nil {
		return err
	}
	w.foreign.data, w.cachedAt = data, data
	if !w.opts.Serve {
		return nil
	}
	// The commits of a killed process are in the log, perhaps not yet synced. They must be
	// durable before the relay shows them to clients again. For a cramped server,
	// OpenFull has synced the log.
	if !w.cramped {
		if err := w.copyLog(); err != nil {
			return err
		}
	}
	w.sayAhead()
	return nil
}

// copyLog makes what the log has durable: it copies the log into the database, or syncs
// the log where that is not possible. It does not wait for other processes that read,
// because Litestream reads at all times.
func (w *writer) copyLog() error {
	held, err := w.c.CopyLog()
	if sqlite.IsDiskFull(err) {
		w.opts.Logger.Error("the disk is full: the log was not copied into the database", "db", w.path, "error", err)
	}
	if held && err == nil || sqlite.IsDiskFull(err) {
		return file.SyncLog(w.path)
	}
	return err
}

// findLast reads the last position of the shared order, and the last local one.
func (w *writer) findLast() error {
	if !w.ordered {
		last, err := file.LastPosition(w.c)
		if err != nil {
			return err
		}
		w.last = max(w.last, last)
	}
	for _, table := range []string{"search", "push"} {
		p, err := w.c.Number("SELECT max(position) FROM " + table)
		if err != nil {
			return err
		}
		w.lastLocal = max(w.lastLocal, relay.Position(p))
	}
	return nil
}
