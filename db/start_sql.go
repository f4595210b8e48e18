package db

import (
	"fmt"
	"time"
)

// readSecret reads what keys the ids and hashes.
func (d *DB) readSecret(c *conn) error {
	var secret []byte
	_, err := c.row(func(r *rows) { secret = r.blob(0) }, "SELECT value FROM setting WHERE name = 'secret'")
	if err != nil {
		return err
	}
	if len(secret) < 16 {
		return fmt.Errorf("%s has no secret: not a relay database, or damaged", d.path)
	}
	d.ids, err = newIDs(secret)
	return err
}

// start reads what the writer and the nonces must know of the past.
func (w *writer) start() error {
	for _, q := range []string{"SELECT max(position) FROM message", "SELECT max(position) FROM receipt",
		"SELECT max(revision) FROM mecha", "SELECT max(position) FROM profile_nonce", "SELECT max(position) FROM nonce_page",
		"SELECT max(position) FROM search", "SELECT max(position) FROM push"} {
		if _, err := w.c.row(func(r *rows) { w.last = max(w.last, Position(r.int(0))) }, q); err != nil {
			return err
		}
	}
	_, err := w.c.row(func(r *rows) { w.nextExpiry = r.int(0) },
		"SELECT min(expires_at) FROM message INDEXED BY message_expiry WHERE open = 1 AND expires_at IS NOT NULL")
	if err != nil {
		return err
	}
	w.nextEmptying = 1 // what expired meanwhile goes when the writer begins
	w.dataVersion, w.keysVersion = w.versions()
	w.touched = w.d.opts.Now()
	if !w.d.opts.Serve {
		return nil
	}
	// What a killed process had committed is in the log, perhaps not yet synced by
	// anybody: make it durable before it is answered for again.
	if _, err := w.c.row(nil, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return err
	}
	if ahead := w.last.Time().Sub(w.touched); ahead > time.Minute {
		w.d.opts.Logger.Warn("the clock is behind the newest message: created_at stands still until it has caught up", "behind", ahead)
	}
	if err := w.loadTail(); err != nil {
		return err
	}
	return w.restoreNonces()
}

// versions reads what changes when another process writes (data) and when keys change.
func (w *writer) versions() (data, keys int64) {
	w.c.row(func(r *rows) { data = r.int(0) }, "PRAGMA data_version")
	w.c.row(func(r *rows) { keys = r.int(0) }, "SELECT value FROM setting WHERE name = 'keys_version'")
	return data, keys
}

// poll notices what other processes have committed. It runs on the writer's own
// connection, where our own commits do not count as changes.
func (w *writer) poll() {
	if lost := w.d.lostFile(); lost != nil && w.failed() == nil {
		w.fail(w.leave(lost))
		return
	}
	var data int64
	if _, err := w.c.row(func(r *rows) { data = r.int(0) }, "PRAGMA data_version"); err != nil {
		if isFatal(err) {
			w.fail(err)
		}
		return
	}
	if data == w.dataVersion {
		return
	}
	_, keys := w.versions()
	w.dataVersion, w.copySoon = data, true
	w.d.mechas.forget()
	w.d.entriesChanged()
	if keys != w.keysVersion {
		w.keysVersion = keys
		w.d.keysChanged()
	}
}

// Claim remembers that a key used a nonce in a request of the given timestamp:
// NonceReused if it did before, Overloaded if there are too many to remember.
func (d *DB) Claim(k *Key, nonce string, timestamp time.Time) (NonceHash, error) {
	h := NonceHash(d.ids.hash64('n', k.Number, []byte(nonce)) | 1)
	return h, d.nonces.Claim(h, d.opts.Now(), timestamp.Add(d.opts.ClockSkew))
}
