package db

import (
	"time"

	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// start reads the state of the writer, its rooms and the nonces from the file.
func (w *writer) start() error {
	if err := w.findLast(); err != nil {
		return err
	}
	for _, r := range []interface{ start() error }{w.progress, w.learning, w.sending} {
		if err := r.start(); err != nil {
			return err
		}
	}
	data, err := w.c.Number("PRAGMA data_version")
	if err != nil {
		return err
	}
	w.foreign.data, w.cachedAt = data, data
	now := w.opts.Now()
	w.directory.keyUse.wrote = now
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
	if err := w.mailbox.segments.start(); err != nil {
		return err
	}
	if err := w.dictionary.index.start(); err != nil {
		return err
	}
	if err := w.retention.start(now); err != nil {
		return err
	}
	return w.restoreNonces(w.replays.used, now)
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

// Claim remembers that a key used a nonce, in a request with the given timestamp, and
// returns the nonce's hash (PROTOCOL §2). Errors: NonceReused, if the key used the nonce
// before; Overloaded, if Options.MaxNonces are remembered; ShuttingDown after Close. Safe
// for concurrent use.
func (p *replays) Claim(k *relay.Key, nonce string, timestamp time.Time) (relay.NonceHash, error) {
	h := relay.NonceHash(p.w.ids.Hash('n', int64(k.Number), []byte(nonce)) | 1)
	return h, p.used.Claim(h, p.w.opts.Now(), timestamp.Add(p.w.opts.ClockSkew))
}

// EarliestTimestamp gives the earliest timestamp that a request may have now (PROTOCOL §2).
// It is the time of the last start that may have lost nonces, or long ago if there was
// none. Safe for concurrent use.
func (p *replays) EarliestTimestamp(now time.Time) time.Time { return p.used.Earliest(now) }
