package db

import (
	"encoding/binary"
	"math"
	"time"

	"relay/db/relay"
)

// A start must know the nonces of all writes that could still be replayed: after
// a busy quarter of an hour these are millions, and reading a row for each takes
// seconds. So the server packs them as it goes, a page for some thousands. What
// no page covers is read row by row: a page is a shortcut, the rows are the truth.
const (
	fullNoncePage = 8192        // nonces, after which a page is written
	oldNoncePage  = time.Minute // … or this long after its first
	fewNonces     = 256         // fewer are read from their rows just as well
)

// noncePacker is the rider that packs nonces. It has the page in the making.
type noncePacker struct {
	w      *writer
	after  relay.Position // all nonces of writes behind this, up to the last commit, are here
	nonces []byte         // 8 bytes each
	began  time.Time
	// What the transaction in hand is about to commit. If that fails, it is not
	// known what the file has: no page covers it then.
	open  bool
	tried relay.Position
}

// board adds the nonces of a transaction to the page in the making, and writes
// that first, in the same transaction, if it is full or old. It covers what had
// been committed before.
func (p *noncePacker) board(t *tx) error {
	if !p.w.opts.Serve {
		return nil // nobody but a server takes requests
	}
	now := p.w.opts.Now()
	if p.open {
		p.restart(max(p.tried, p.w.last))
	}
	if len(p.nonces) >= 8*fullNoncePage || len(p.nonces) > 0 && now.Sub(p.began) > oldNoncePage {
		if err := p.write(t, now); err != nil {
			return err
		}
		p.restart(p.w.last)
	}
	if len(p.nonces) == 0 {
		p.began = now
	}
	for _, n := range t.nonces {
		p.nonces = binary.LittleEndian.AppendUint64(p.nonces, uint64(n))
	}
	p.open, p.tried = true, t.last
	return nil
}

func (p *noncePacker) arrived(*tx) { p.open = false }

func (p *noncePacker) restart(after relay.Position) {
	*p = noncePacker{w: p.w, after: after, nonces: p.nonces[:0]}
}

func (p *noncePacker) write(t *tx, now time.Time) error {
	last := p.w.last
	if len(p.nonces) < 8*fewNonces || last <= p.after { // what changed nothing has no place in the order
		return nil
	}
	if err := t.c.Exec("DELETE FROM nonce_page WHERE position < ?", int64(relay.PositionAt(now.Add(-nonceKept)))); err != nil {
		return err
	}
	return t.c.Exec("INSERT INTO nonce_page (position, after, nonces) VALUES (?, ?, ?)", int64(last), int64(p.after), p.nonces)
}

// nonceOf is the nonce that a write used; 0 if none.
func nonceOf(w relay.Write) relay.NonceHash {
	switch w := w.(type) {
	case *relay.SendMessage:
		return w.Nonce
	case *relay.Acknowledge:
		return w.Nonce
	case *relay.MarkDelivered:
		return w.Nonce
	case *relay.PutProfile:
		return w.Nonce
	}
	return 0
}

const maxRestored = 4_000_000 // nonces, from pages, and as many from rows: bounds the start

// restoreNonces reads back the nonces of committed writes that could still be
// replayed, the newest first. A request's timestamp may have been ahead of its
// commit by as much as the clock skew allowed then.
func (w *writer) restoreNonces(nonces *Nonces, now time.Time) error {
	w.nonces.restart(w.last)
	window := w.opts.ClockSkew + relay.MaxClockSkew
	found, from := &foundNonces{now: now, window: window}, relay.PositionAt(now.Add(-window))
	gaps, err := w.readNoncePages(found, from)
	if err != nil {
		return err
	}
	most := found.count + maxRestored
	for _, gap := range gaps {
		if err := w.readNonceRows(found, gap, most, "message", "receipt", "profile_nonce"); err != nil {
			return err
		}
	}
	// Searches stand in an order of their own, which no page covers.
	if err := w.readNonceRows(found, nonceRange{from - 1, math.MaxInt64}, most, "search"); err != nil {
		return err
	}
	nonces.restore(found)
	return nil
}

// A nonceRange is a range of positions: after, exclusive, to upto, inclusive.
type nonceRange struct{ after, upto relay.Position }

// readNoncePages reads the pages from a position on, and tells what they leave out.
func (w *writer) readNoncePages(found *foundNonces, from relay.Position) (gaps []nonceRange, err error) {
	upto := w.last
	r := w.c.Query("SELECT position, after, nonces FROM nonce_page WHERE position >= ? ORDER BY position DESC", int64(from))
	for found.count < maxRestored && r.Next() {
		position, after := relay.Position(r.Int(0)), relay.Position(r.Int(1))
		if position < upto {
			gaps = append(gaps, nonceRange{position, upto})
		}
		found.add(position, r.Blob(2))
		upto = min(upto, after)
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	if from-1 < upto {
		gaps = append(gaps, nonceRange{from - 1, upto})
	}
	return gaps, nil
}

func (w *writer) readNonceRows(found *foundNonces, gap nonceRange, most int, tables ...string) error {
	var packed [8]byte
	for _, table := range tables {
		r := w.c.Query("SELECT position, nonce FROM "+table+" WHERE position > ? AND position <= ? AND nonce IS NOT NULL ORDER BY position DESC",
			int64(gap.after), int64(gap.upto))
		for found.count < most && r.Next() {
			binary.LittleEndian.PutUint64(packed[:], uint64(r.Int(1)))
			found.add(relay.Position(r.Int(0)), packed[:])
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}
