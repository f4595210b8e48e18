// Package replays is the room of used nonces: it decides which requests are replays (PROTOCOL §2).
//
// Nonces are claimed in memory (Nonces) and in the ring, a file of its own (package ring), before
// their write is queued. A start restores the nonces that could still be replayed: from the ring
// or, if the ring may be incomplete, from pages and rows of the writes. Any goroutine may call
// Claim; the rest belongs to the writer's goroutine.
package replays

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"path/filepath"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
	"relay/db/ring"
)

// At a start, the server must restore the nonces of all writes that could still be
// replayed. After a busy quarter of an hour these are millions, and reading a row for
// each takes seconds. So the server packs them into pages of some thousands while it
// runs. A page is only a shortcut. Nonces that are in no page are read from the rows of
// their writes.
const (
	FullNoncePage = 8192        // a page is written when it has this many nonces
	OldNoncePage  = time.Minute // a page is also written this long after its first nonce
	FewNonces     = 256         // fewer nonces are not written, since reading their rows is fast
)

// Replays is the room of used nonces. It packs the nonces of writes, and has the page that
// is not written yet.
type Replays struct {
	engine.Quiet
	limit  int64         // remembered nonces; 0 means no limit
	skew   time.Duration // how far the timestamp of a request may be off
	w      *engine.Store
	Used   *Nonces        // in memory, and in the ring
	after  relay.Position // the page has the nonces of all committed writes after this position
	nonces []byte         // 8 bytes each
	began  time.Time      // when the page got its first nonce
	// Open says that BeforeCommit was called, but not AfterCommit: the transaction up to
	// tried may have failed or not. No page may cover it then.
	Open  bool
	Tried relay.Position
	// brought are the nonces of the present transaction.
	brought []relay.NonceHash
}

// BeforeCommit adds the nonces of the transaction to the page. If the page is full or old
// before that, BeforeCommit writes it in this transaction. So a written page covers only
// earlier commits. New makes the room. passed is for tests: the running time, which then
// does not follow the clock; else nil.
func New(w *engine.Store, limit int64, skew time.Duration, passed func() time.Duration) *Replays {
	used := NewNonces(limit, w.Opts.Now())
	if passed != nil {
		began := passed()
		used.Elapsed = func(time.Time) time.Duration { return passed() - began }
	}
	return &Replays{w: w, limit: limit, skew: skew, Used: used}
}

func (p *Replays) Begin(*engine.Tx) { p.brought = p.brought[:0] }

func (p *Replays) Applied(_ *engine.Tx, j engine.Job) {
	if n := p.w.Table.NonceOf(j); n != 0 {
		p.brought = append(p.brought, n)
	}
}

func (p *Replays) BeforeCommit(t *engine.Tx) error {
	if !p.w.Opts.Serve {
		return nil // only a server takes requests with nonces
	}
	now := p.w.Opts.Now()
	if p.Open {
		p.restart(max(p.Tried, p.w.Last))
	}
	if len(p.nonces) >= 8*FullNoncePage || len(p.nonces) > 0 && now.Sub(p.began) > OldNoncePage {
		if err := p.write(t, now); err != nil {
			return err
		}
		p.restart(p.w.Last)
	}
	if len(p.nonces) == 0 {
		p.began = now
	}
	for _, n := range p.brought {
		p.nonces = binary.LittleEndian.AppendUint64(p.nonces, uint64(n))
	}
	p.Open, p.Tried = true, t.Last
	return nil
}

func (p *Replays) AfterCommit(*engine.Tx) { p.Open = false }

// restart begins an empty page.
func (p *Replays) restart(after relay.Position) {
	// Only the page, because other goroutines read the other fields.
	p.after, p.nonces, p.began, p.Open, p.Tried = after, p.nonces[:0], time.Time{}, false, 0
}

// write writes the page and deletes useless old pages.
func (p *Replays) write(t *engine.Tx, now time.Time) error {
	last := p.w.Last
	// too few, or nonces of writes that changed nothing and so have no position
	if len(p.nonces) < 8*FewNonces || last <= p.after {
		return nil
	}
	if err := t.C.Exec("DELETE FROM nonce_page WHERE position < ?",
		int64(relay.PositionAt(now.Add(-NonceKept)))); err != nil {
		return err
	}
	return t.C.Exec("INSERT INTO nonce_page (position, after, nonces) VALUES (?, ?, ?)",
		int64(last), int64(p.after), p.nonces)
}

// the maximum number of nonces read from pages, and again from rows, to bound the time of a start
const maxRestored = 4_000_000

// Restore reads the nonces that could still be replayed from the ring. If the ring may be
// incomplete, Restore also reads the nonces of the committed writes.
func (p *Replays) Restore(now time.Time) error {
	nonces := p.Used
	p.restart(p.w.Last)
	found := &foundNonces{}
	if err := p.openRing(nonces, found); err != nil {
		return err
	}
	if window := p.nonceWindow(); nonces.past.Began-nonces.past.Since < window {
		if err := p.readNonces(found, now, window); err != nil {
			return err
		}
	}
	nonces.restore(found, now)
	return nil
}

// nonceWindow returns how long after the commit the nonce of a write must be refused. The
// timestamp of the request may have been ahead of the commit, by the clock skew that was
// allowed at that time.
func (p *Replays) nonceWindow() time.Duration { return p.skew + relay.MaxClockSkew }

// openRing opens the ring of the file. If that fails, the server continues without a
// ring, and the next start refuses the requests that were signed before it.
func (p *Replays) openRing(nonces *Nonces, found *foundNonces) error {
	last, this, unused, err := p.markStart()
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(p.w.Path)
	if err != nil {
		return err
	}
	nonces.ring, nonces.past, err = ring.Open(real+ring.Suffix, ring.Options{
		Store: uint64(p.w.IDs.Hash('r', 0, nil)), Last: last, Mark: this, Unused: unused,
		Skew: p.skew, MaxNonces: 2 * p.limit, Logger: p.w.Opts.Logger,
		Found: found.addSegment,
	})
	if err != nil {
		p.w.Opts.Logger.Warn("used nonces are kept in memory only; the next start refuses requests that were "+
			"signed before it", "error", err)
	}
	if !nonces.past.Whole {
		p.w.Opts.Logger.Warn("requests that were signed before this start are refused, since the file of used " +
			"nonces may lack some")
	}
	return nil
}

// markStart writes a new mark of a start into the file, and returns it with the mark of the
// start before. unused says that no server has started on the file yet. On a full disk,
// both are the mark that the file has.
func (p *Replays) markStart() (last, this ring.Mark, unused bool, err error) {
	var text []byte
	known, err := p.w.C.Row(func(r *sqlite.Rows) { text = append(text, r.Blob(0)...) },
		"SELECT value FROM setting WHERE name = 'start'")
	if err != nil {
		return last, this, false, err
	}
	copy(last[:], text)
	if p.w.StartedFull {
		return last, last, false, nil
	}
	unused = known && len(text) == 0
	rand.Read(this[:]) // never fails (crypto/rand)
	if err = p.w.C.BeginWrite(); err != nil {
		return last, this, unused, err
	}
	if err = p.w.C.Exec("INSERT OR REPLACE INTO setting (name, value) VALUES ('start', ?)", this[:]); err == nil {
		err = p.w.C.Commit()
	}
	if err != nil {
		p.w.C.Rollback()
	}
	if err != nil && sqlite.IsDiskFull(err) && !unused {
		return last, last, false, nil
	}
	return last, this, unused, err
}

// readNonces reads the nonces of the committed writes that could still be replayed, the
// newest first.
func (p *Replays) readNonces(found *foundNonces, now time.Time, window time.Duration) error {
	// Count back from the last commit. The clock may be ahead now, and be corrected later.
	if last := p.w.Last.Time(); last.Before(now) {
		now = last
	}
	from := relay.PositionAt(now.Add(-window))
	rows := &writeNonces{foundNonces: found, now: now, window: window}
	gaps, err := p.readNoncePages(rows, from)
	if err != nil {
		return err
	}
	limit := found.count + maxRestored
	for _, gap := range gaps {
		if err := p.readNonceRows(rows, gap, limit, "message", "receipt", "kept_nonce"); err != nil {
			return err
		}
	}
	// The rows of searches have local positions, which no page covers, so they are always
	// read. Pages have the nonces of searches, too, because newer searches delete the rows
	// of older ones.
	return p.readNonceRows(rows, nonceRange{from - 1, math.MaxInt64}, limit, "search")
}

// writeNonces is foundNonces for nonces whose commit has a position.
type writeNonces struct {
	*foundNonces
	now    time.Time // the time of the start, or of the last commit if the clock was ahead of that
	window time.Duration
}

// at takes nonces of 8 bytes each, except expired ones. p is the position of the last.
func (f *writeNonces) at(p relay.Position, nonces []byte) {
	at := p.Time()
	if at.After(f.now) {
		at = f.now // the clock was ahead at the commit
	}
	if seconds := at.Add(f.window).Unix() + 1 - f.now.Unix(); seconds > 0 {
		f.add(uint16(seconds), nonces)
	}
}

// nonceRange is a range of positions: after is exclusive, upto inclusive.
type nonceRange struct{ after, upto relay.Position }

// readNoncePages reads the pages from a position on, and returns the ranges that they
// do not cover.
func (p *Replays) readNoncePages(found *writeNonces, from relay.Position) (gaps []nonceRange, err error) {
	upto, limit := p.w.Last, found.count+maxRestored
	r := p.w.C.Query("SELECT position, after, nonces FROM nonce_page WHERE position >= ? ORDER BY position DESC",
		int64(from))
	for found.count < limit && r.Next() {
		position, after := relay.Position(r.Int(0)), relay.Position(r.Int(1))
		if position < upto {
			gaps = append(gaps, nonceRange{position, upto})
		}
		found.at(position, r.Blob(2))
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
// limit nonces.
func (p *Replays) readNonceRows(found *writeNonces, gap nonceRange, limit int, tables ...string) error {
	var packed [8]byte
	for _, table := range tables {
		r := p.w.C.Query("SELECT position, nonce FROM "+table+" WHERE position > ? AND position <= ? AND nonce <> 0 "+
			"ORDER BY position DESC",
			int64(gap.after), int64(gap.upto))
		for found.count < limit && r.Next() {
			binary.LittleEndian.PutUint64(packed[:], uint64(r.Int(1)))
			found.at(relay.Position(r.Int(0)), packed[:])
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Claim remembers that a key used a nonce, in a request with the given timestamp, and
// returns the nonce's hash (PROTOCOL §2). Errors: NonceReused, if the key used the nonce
// before; Overloaded, if Options.MaxNonces are remembered; ShuttingDown after Close. Any
// goroutine may call it.
func (p *Replays) Claim(k *relay.Key, nonce string, timestamp time.Time) (relay.NonceHash, error) {
	h := relay.NonceHash(p.w.IDs.Hash('n', int64(k.Number), []byte(nonce)) | 1)
	return h, p.Used.Claim(h, p.w.Opts.Now(), timestamp.Add(p.skew))
}

// EarliestTimestamp returns the earliest timestamp that a request may have now (PROTOCOL §2).
// It is the time of the last start that may have lost nonces, or a time long ago. Any
// goroutine may call it.
func (p *Replays) EarliestTimestamp(now time.Time) time.Time { return p.Used.Earliest(now) }

// NonceKept is how long the file keeps nonces independently of the rows of their writes.
// It is longer than a request can be replayed.
const NonceKept = 4 * relay.MaxClockSkew

// KeepNonce keeps the nonce of a write that leaves no row with a nonce, for as long as
// a start may have to restore it.
func (p *Replays) KeepNonce(t *engine.Tx, n relay.NonceHash, at time.Time) error {
	if n == 0 {
		return nil
	}
	if err := p.DropNonces(t, at); err != nil {
		return err
	}
	return t.C.Exec("INSERT INTO kept_nonce (position, nonce) VALUES (?, ?)", int64(t.Position(at)), int64(n))
}

// DropNonces deletes some of the kept nonces that are useless by now.
func (p *Replays) DropNonces(t *engine.Tx, at time.Time) error {
	return t.C.Exec("DELETE FROM kept_nonce WHERE position IN (SELECT position FROM kept_nonce WHERE position < ? "+
		"ORDER BY position LIMIT ?)",
		int64(relay.PositionAt(at.Add(-NonceKept))), int64(noncesAtOnce))
}

// noncesAtOnce is how many old nonces a write removes. It is more than a write adds, so
// the table stays bounded.
const noncesAtOnce = 1000
