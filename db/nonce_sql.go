package db

import (
	"encoding/binary"
	"time"
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

// noncePage is the page in the making. It belongs to the writer.
type noncePage struct {
	after  Position // all nonces of writes behind this, up to the last commit, are here
	nonces []byte   // 8 bytes each
	began  time.Time
	// What the transaction in hand is about to commit. If that fails, it is not
	// known what the file has: no page covers it then.
	open  bool
	tried Position
}

// packNonces adds the nonces of a transaction to the page in the making, and
// writes that first, in the same transaction, if it is full or old. It covers
// what had been committed before.
func (t *tx) packNonces(ops []*op) error {
	p := &t.w.nonces
	if !t.d.opts.Serve {
		return nil // nobody but a server takes requests
	}
	if p.open {
		p.restart(max(p.tried, t.w.last))
	}
	if len(p.nonces) >= 8*fullNoncePage || len(p.nonces) > 0 && t.now.Sub(p.began) > oldNoncePage {
		if err := t.writeNonces(p); err != nil {
			return err
		}
		p.restart(t.w.last)
	}
	if len(p.nonces) == 0 {
		p.began = t.now
	}
	for _, o := range ops {
		if w, ok := o.write.(interface{ usedNonce() NonceHash }); ok && o.err == nil && w.usedNonce() != 0 {
			p.nonces = binary.LittleEndian.AppendUint64(p.nonces, uint64(w.usedNonce()))
		}
	}
	p.open, p.tried = true, t.last
	return nil
}

func (p *noncePage) restart(after Position) {
	*p = noncePage{after: after, nonces: p.nonces[:0]}
}

func (t *tx) writeNonces(p *noncePage) error {
	if len(p.nonces) < 8*fewNonces || t.w.last <= p.after { // what changed nothing has no place in the order
		return nil
	}
	if err := t.c.exec("DELETE FROM nonce_page WHERE position < ?", int64(positionAt(t.now.Add(-nonceKept)))); err != nil {
		return err
	}
	return t.c.exec("INSERT INTO nonce_page (position, after, nonces) VALUES (?, ?, ?)", int64(t.w.last), int64(p.after), p.nonces)
}

func (m *SendMessage) usedNonce() NonceHash   { return m.Nonce }
func (a *Acknowledge) usedNonce() NonceHash   { return a.Nonce }
func (m *MarkDelivered) usedNonce() NonceHash { return m.Nonce }
func (p *PutProfile) usedNonce() NonceHash    { return p.Nonce }
func (s *SaveSearch) usedNonce() NonceHash    { return s.Nonce }

const maxRestored = 4_000_000 // nonces, from pages, and as many from rows: bounds the start

// restoreNonces reads back the nonces of committed writes that could still be
// replayed, the newest first. A request's timestamp may have been ahead of its
// commit by as much as the clock skew allowed then.
func (w *writer) restoreNonces() error {
	w.nonces.restart(w.last)
	now, window := w.d.opts.Now(), w.d.opts.ClockSkew+maxClockSkew
	found := &foundNonces{now: now, window: window}
	gaps, err := w.readNoncePages(found, positionAt(now.Add(-window)))
	if err != nil {
		return err
	}
	most := found.count + maxRestored
	for _, gap := range gaps {
		if err := w.readNonceRows(found, gap, most); err != nil {
			return err
		}
	}
	w.d.nonces.restore(found)
	return nil
}

// A noncesOf is a range of positions: after, exclusive, to upto, inclusive.
type noncesOf struct{ after, upto Position }

// readNoncePages reads the pages from a position on, and tells what they leave out.
func (w *writer) readNoncePages(found *foundNonces, from Position) (gaps []noncesOf, err error) {
	upto := w.last
	r := w.c.query("SELECT position, after, nonces FROM nonce_page WHERE position >= ? ORDER BY position DESC", int64(from))
	for found.count < maxRestored && r.next() {
		position, after := Position(r.int(0)), Position(r.int(1))
		if position < upto {
			gaps = append(gaps, noncesOf{position, upto})
		}
		found.add(position, r.blob(2))
		upto = min(upto, after)
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	if from-1 < upto {
		gaps = append(gaps, noncesOf{from - 1, upto})
	}
	return gaps, nil
}

func (w *writer) readNonceRows(found *foundNonces, gap noncesOf, most int) error {
	var packed [8]byte
	for _, table := range []string{"message", "receipt", "profile_nonce", "search"} {
		r := w.c.query("SELECT position, nonce FROM "+table+" WHERE position > ? AND position <= ? AND nonce IS NOT NULL ORDER BY position DESC",
			int64(gap.after), int64(gap.upto))
		for found.count < most && r.next() {
			binary.LittleEndian.PutUint64(packed[:], uint64(r.int(1)))
			found.add(Position(r.int(0)), packed[:])
		}
		if err := r.close(); err != nil {
			return err
		}
	}
	return nil
}
