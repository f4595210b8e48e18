package db

import (
	"time"

	"relay/db/relay"
)

// start reads what the writer and the nonces must know of the past.
func (w *writer) start(nonces *Nonces) error {
	if err := w.findLast(); err != nil {
		return err
	}
	if err := w.expiry.start(); err != nil {
		return err
	}
	w.foreign.data, w.foreign.keys = w.versions()
	w.cachedAt = w.foreign.data
	w.searches.next = 1 // what expired meanwhile goes when the writer begins
	now := w.opts.Now()
	w.keyUse.wrote = now
	if !w.opts.Serve {
		return nil
	}
	// What a killed process had committed is in the log, perhaps not yet synced by
	// anybody: make it durable before it is answered for again.
	if _, err := w.c.Row(nil, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return err
	}
	if ahead := w.last.Time().Sub(now); ahead > time.Minute {
		w.opts.Logger.Warn("the clock is behind the newest message: created_at stands still until it has caught up", "behind", ahead)
	}
	if err := w.segments.start(); err != nil {
		return err
	}
	return w.restoreNonces(nonces, now)
}

// findLast reads the ends of the two orders, each from the tables of its own.
func (w *writer) findLast() error {
	for query, last := range map[string]*relay.Position{
		"SELECT max(position) FROM message":       &w.last,
		"SELECT max(position) FROM receipt":       &w.last,
		"SELECT max(revision) FROM mecha":         &w.last,
		"SELECT max(position) FROM profile_nonce": &w.last,
		"SELECT max(position) FROM search":        &w.lastLocal,
		"SELECT max(position) FROM push":          &w.lastLocal,
	} {
		p, err := w.c.Number(query)
		if err != nil {
			return err
		}
		*last = max(*last, relay.Position(p))
	}
	return nil
}

// Claim remembers that a key used a nonce in a request of the given timestamp:
// NonceReused if it did before, Overloaded if there are too many to remember.
func (d *DB) Claim(k *relay.Key, nonce string, timestamp time.Time) (relay.NonceHash, error) {
	h := relay.NonceHash(d.ids.Hash('n', int64(k.Number), []byte(nonce)) | 1)
	return h, d.nonces.Claim(h, d.opts.Now(), timestamp.Add(d.opts.ClockSkew))
}
