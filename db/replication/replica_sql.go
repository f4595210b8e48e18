package replication

import (
	"encoding/binary"
	"fmt"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// becomeCopy makes the writer's file the first copy that follows a log.
func becomeCopy(w *engine.Store) (at file.Replica, err error) {
	if err := w.C.BeginWrite(); err != nil {
		return at, err
	}
	if at, err = createLog(w.C); err == nil {
		err = w.C.Commit()
	}
	if err != nil {
		w.C.Rollback()
	}
	return at, err
}

// leaveSyncs has a copy that follows a log sync its transactions at checkpoints alone. Entries
// that a power cut takes from the end of the file are in the log, which syncs each entry, and
// are applied again: the place in the log is lost with the rows.
func leaveSyncs(w *engine.Store) error { return w.C.Exec("PRAGMA synchronous = NORMAL") }

// start reads the origins, and the nonces that still count.
func (r *Replica) start() error {
	rows := r.w.C.Query("SELECT id, counter FROM origin")
	for rows.Next() {
		var from Origin
		copy(from[:], rows.Blob(0))
		r.origins[from] = uint64(rows.Int(1))
	}
	if err := rows.Close(); err != nil {
		return err
	}
	rows = r.w.C.Query("SELECT at, nonces FROM entry_nonce WHERE at >= ?", firstPart(r.File.At)*spentPart.Milliseconds())
	for rows.Next() {
		r.spent.add(rows.Int(0), unpackNonces(rows.Blob(1)))
	}
	return rows.Close()
}

// write writes the rows of the entries of the present transaction, besides those of their
// writes.
func (r *Replica) write(t *engine.Tx) error {
	for _, e := range r.entries {
		if len(e.nonces) > 0 {
			if err := t.C.Exec("INSERT INTO entry_nonce (entry, at, nonces) VALUES (?, ?, ?)",
				int64(e.number), e.at, packNonces(e.nonces)); err != nil {
				return err
			}
		}
		// Two, because an entry adds one: so the table stays bounded, and no entry takes long.
		err := t.C.Exec("DELETE FROM entry_nonce WHERE entry IN (SELECT entry FROM entry_nonce ORDER BY entry "+
			"LIMIT 2) AND at < ?",
			firstPart(e.at)*spentPart.Milliseconds())
		if err != nil {
			return err
		}
	}
	for _, from := range r.inOrder() {
		if err := t.C.Exec("INSERT OR REPLACE INTO origin (id, counter) VALUES (?, ?)",
			from[:], int64(r.counters[from])); err != nil {
			return err
		}
	}
	n := &r.now
	ours, err := t.C.Row(nil, "UPDATE replica SET version = ?, applied = ?, at = ?, last = ?, hash = ? "+
		"WHERE id = 1 AND applied = ? AND hash = ? RETURNING 1",
		n.Version, int64(n.Applied), n.At, int64(n.Last), int64(n.Hash), int64(r.File.Applied), int64(r.File.Hash))
	if err == nil && !ours {
		err = fmt.Errorf("%w: another process has changed its place in the log", sqlite.ErrDamaged)
	}
	return err
}

func packNonces(all []relay.NonceHash) (b []byte) {
	for _, n := range all {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func unpackNonces(b []byte) (all []relay.NonceHash) {
	for ; len(b) >= 8; b = b[8:] {
		all = append(all, relay.NonceHash(binary.LittleEndian.Uint64(b)))
	}
	return all
}
