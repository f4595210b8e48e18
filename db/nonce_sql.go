package db

import (
	"encoding/binary"
	"math"
	"time"

	"relay/db/relay"
)

// At a start, the server must restore the nonces of all writes that could still be
// replayed. After a busy quarter of an hour these are millions, and reading a row for
// each takes seconds. So the server packs them into pages of some thousands while it
// runs. A page is only a shortcut. Nonces that are in no page are read from the rows of
// their writes.
const (
	fullNoncePage = 8192        // a page is written when it has this many nonces
	oldNoncePage  = time.Minute // a page is also written this long after its first nonce
	fewNonces     = 256         // fewer nonces are not written, since reading their rows is fast
)

// noncePacker is the rider that packs nonces. It has the page that is not written yet.
type noncePacker struct {
	w      *writer
	after  relay.Position // the page has the nonces of all committed writes after this position
	nonces []byte         // 8 bytes each
	began  time.Time      // when the page got its first nonce
	// open says that board was called, but not arrived: the transaction up to tried may
	// have failed or not. No page may cover it then.
	open  bool
	tried relay.Position
}

// board adds the nonces of the transaction to the page. If the page is full or old
// before that, board writes it in this transaction. So a written page covers only
// earlier commits.
func (p *noncePacker) board(t *tx) error {
	if !p.w.opts.Serve {
		return nil // only a server takes requests with nonces
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

// restart begins an empty page.
func (p *noncePacker) restart(after relay.Position) {
	*p = noncePacker{w: p.w, after: after, nonces: p.nonces[:0]}
}

// write writes the page and deletes pages that are too old to be of use.
func (p *noncePacker) write(t *tx, now time.Time) error {
	last := p.w.last
	if len(p.nonces) < 8*fewNonces || last <= p.after { // too few, or of writes that changed nothing and so have no position
		return nil
	}
	if err := t.c.Exec("DELETE FROM nonce_page WHERE position < ?", int64(relay.PositionAt(now.Add(-nonceKept)))); err != nil {
		return err
	}
	return t.c.Exec("INSERT INTO nonce_page (position, after, nonces) VALUES (?, ?, ?)", int64(last), int64(p.after), p.nonces)
}

// nonceOf gives the nonce of a job; 0 if it has none.
func nonceOf(j job) relay.NonceHash {
	if c, ok := j.(*choreJob); ok {
		if s, ok := c.chore.(*SaveSearch); ok {
			return s.Nonce
		}
		return 0
	}
	switch w := j.shared().(type) {
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

const maxRestored = 4_000_000 // the most nonces that are read from pages, and again from rows, to bound the time of a start

// restoreNonces reads the nonces of committed writes that could still be replayed, the
// newest first. The timestamp of a request may have been ahead of its commit, by as
// much as the clock skew that was allowed then.
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
	// Searches stand in an order of their own: their rows are read whatever the pages
	// cover. Pages have their nonces too, for newer searches push out older ones.
	if err := w.readNonceRows(found, nonceRange{from - 1, math.MaxInt64}, most, "search"); err != nil {
		return err
	}
	nonces.restore(found)
	return nil
}

// nonceRange is a range of positions: after is exclusive, upto inclusive.
type nonceRange struct{ after, upto relay.Position }

// readNoncePages reads the pages from a position on, and returns the ranges that they
// do not cover.
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

// readNonceRows reads the nonces of a range from the rows of tables, until found has
// most nonces.
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
