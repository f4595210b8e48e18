package db

import (
	"strings"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// indexedUpto is the watermark: the index tables have all messages up to there.
func (x *rx) indexedUpto() (relay.Position, error) {
	p, err := x.c.Number("SELECT value FROM setting WHERE name = 'indexed_upto'")
	return relay.Position(p), err
}

// unindexed tells where to look for a Mecha's messages that the index may lack: in
// a list, which may have others too, or by a scan from a position on.
type unindexed struct {
	mecha relay.MechaID
	after relay.Position
	list  string // JSON; "": scan
	none  bool   // there are none
}

// findUnindexed looks up the messages of a Mecha in [from, to) that the index may
// lack; with pending, only those received and pending matter.
func (x *rx) findUnindexed(id relay.MechaID, from, to relay.Position, pending bool) (unindexed, error) {
	after, err := x.indexedUpto()
	if err != nil || id == 0 {
		return unindexed{none: true}, err
	}
	u := unindexed{mecha: id, after: after}
	positions, many, known := x.late.of(id, after, from, to, pending)
	if known && !many {
		u.none = len(positions) == 0
		u.list = jsonList(positions, func(p relay.Position) relay.Position { return p })
	}
	return u, nil
}

// query makes a query of their positions in [from, to): "" if there are none.
func (u unindexed) query(d relay.Direction, open, done bool, from, to relay.Position) (text string, args []any) {
	if u.none || u.mecha == 0 {
		return "", nil
	}
	// One bound at each end: with two, SQLite might begin at the lower one.
	rows := "message m WHERE m.position >= ? AND m.position < ?"
	args = []any{int64(max(from, u.after+1)), int64(to)}
	if u.list != "" {
		rows, args = "json_each(?) j CROSS JOIN message m ON m.position = j.value WHERE TRUE", []any{u.list}
	}
	var whose []string
	if d != relay.Out {
		in := "m.recipient = ?"
		switch {
		case !done:
			in = "m.recipient = ? AND m.open = 1"
		case !open:
			in = "m.recipient = ? AND m.open = 0"
		}
		whose, args = append(whose, in), append(args, int64(u.mecha))
	}
	if d != relay.In {
		whose, args = append(whose, "m.sender = ?"), append(args, int64(u.mecha))
	}
	return "SELECT m.position FROM " + rows + " AND (" + strings.Join(whose, " OR ") + ")", args
}

// indexNow indexes a message at once, unless this process serves: others must not
// leave it to later, for the server would not know of it.
func (t *tx) indexNow(p relay.Position, recipient, sender relay.MechaID) error {
	if t.w.opts.Serve {
		return nil
	}
	if err := t.c.Exec("INSERT INTO received (mecha, open, position) VALUES (?, 1, ?)", int64(recipient), int64(p)); err != nil {
		return err
	}
	return t.c.Exec("INSERT INTO sent (mecha, position) VALUES (?, ?)", int64(sender), int64(p))
}

// markDone moves a message's row away from those that are pending. A message that
// is not indexed yet will be indexed as what it is then.
func (t *tx) markDone(m *relay.Message) error {
	r := mailboxRow{m.Recipient, m.Position}
	t.settled = append(t.settled, r)
	if s := t.late.collecting; s != nil && s.hasPending(r) { // the writer alone changes it
		return nil
	}
	return t.c.Exec("UPDATE received SET open = 0 WHERE mecha = ? AND open = 1 AND position = ?", int64(m.Recipient), int64(m.Position))
}

// segmentWriter is the rider that inserts the rows of a segment, a piece with each
// transaction.
type segmentWriter struct {
	w              *writer
	index          *lateIndex
	received, sent []mailboxRow // what is left of the segment, in the order of the tables
	upto           relay.Position
	due            int // rows of each table
	tried          int // those of the transaction in hand
}

// start reads which messages a server that was killed had not indexed, or not all
// of them: they are the first to be indexed now.
func (s *segmentWriter) start() error {
	w := s.w
	x := rx{c: w.c, lookups: w.lookups}
	after, err := x.indexedUpto()
	if err != nil {
		return err
	}
	all := newSegment(after)
	s.index.collecting = all
	r := w.c.Query("SELECT position, recipient, sender, open FROM message WHERE position > ? ORDER BY position", int64(after))
	for r.Next() {
		p, to := relay.Position(r.Int(0)), relay.MechaID(r.Int(1))
		if all.add(p, to, relay.MechaID(r.Int(2))); r.Int(3) == 0 {
			all.settle(mailboxRow{to, p})
		}
	}
	if err := r.Close(); err != nil {
		return err
	}
	if all.count > 0 {
		s.next()
	}
	return nil
}

// next begins with the segment that has been collected.
func (s *segmentWriter) next() {
	of := s.index.seal(s.w.last)
	s.received, s.sent, s.upto, s.due = sorted(of.received, of.count), sorted(of.sent, of.count), of.upto, 0
}

// board inserts a piece of the segment in hand, if enough is due, and tells the
// late index what the transaction is about to commit: a read that sees it must
// find it there.
func (s *segmentWriter) board(t *tx) error {
	if s.index.collecting == nil {
		return nil // only a server indexes late
	}
	s.tried = 0
	if n := len(s.received); n > 0 {
		s.due += rowsPerMessage * len(t.brought.Messages)
		if s.due >= min(leastRows, n) {
			s.tried = min(s.due, n)
		}
	}
	s.index.expect(t.brought.Messages)
	return s.insert(t.c)
}

func (s *segmentWriter) insert(c *sqlite.Conn) error {
	if s.tried == 0 {
		return nil
	}
	err := c.Exec(`INSERT OR IGNORE INTO received (mecha, open, position) SELECT m.recipient, m.open, m.position
		FROM json_each(?) j CROSS JOIN message m ON m.position = j.value`, jsonList(s.received[:s.tried], func(r mailboxRow) relay.Position { return r.position }))
	if err != nil {
		return err
	}
	if err := insertSent(c, s.sent[:s.tried]); err != nil || s.tried < len(s.received) {
		return err
	}
	return c.Exec("UPDATE setting SET value = ? WHERE name = 'indexed_upto'", int64(s.upto))
}

const (
	insertOneSent = "INSERT OR IGNORE INTO sent (mecha, position) VALUES (?, ?)"
	sentAtOnce    = 32 // rows in a statement
)

// insertSent inserts the rows as they are: a message's sender never changes.
func insertSent(c *sqlite.Conn, rows []mailboxRow) error {
	args := make([]any, 0, 2*sentAtOnce)
	for len(rows) > 0 {
		n, text := sentAtOnce, insertOneSent+strings.Repeat(", (?, ?)", sentAtOnce-1)
		if len(rows) < n {
			n, text = 1, insertOneSent
		}
		args = args[:0]
		for _, r := range rows[:n] {
			args = append(args, int64(r.mecha), int64(r.position))
		}
		if err := c.Exec(text, args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// arrived notes, after a commit, what is indexed with it, and begins with the next
// segment when that is long enough.
func (s *segmentWriter) arrived(t *tx) {
	if s.index.collecting == nil {
		return
	}
	s.index.collect(t.settled)
	if s.tried > 0 {
		s.received, s.sent, s.due = s.received[s.tried:], s.sent[s.tried:], 0
		if len(s.received) == 0 {
			s.index.finish()
		}
	}
	if len(s.received) == 0 && s.index.collecting.count >= segmentLength {
		s.next()
	}
}

// flush indexes what is left when the store closes. If it fails, the next start
// does it.
func (s *segmentWriter) flush() {
	for s.index.collecting != nil && s.w.failed() == nil && !s.w.disk.low.Load() {
		if len(s.received) == 0 {
			if s.index.collecting.count == 0 {
				return
			}
			s.next()
		}
		before := len(s.received)
		s.due = rowsWhenClosing
		s.w.commit(nil)
		if len(s.received) == before {
			return
		}
	}
}
