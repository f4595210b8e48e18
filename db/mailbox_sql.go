package db

import (
	"maps"
	"slices"
	"strings"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// indexedUpto reads the watermark: the index tables have all messages up to there.
func (x *rx) indexedUpto() (relay.Position, error) {
	p, err := x.c.Number("SELECT value FROM setting WHERE name = 'indexed_upto'")
	return relay.Position(p), err
}

// unindexed says how to find a Mecha's messages that the index may lack: in a list of
// positions, which may have others, too, or by a scan from the watermark on. It also
// says which rows of the index are of messages that were removed.
type unindexed struct {
	mecha  relay.MechaNumber
	after  relay.Position // the watermark
	list   string         // a JSON array of positions; "": scan
	none   bool           // the index lacks no message
	oldest relay.Position // all rows of the index before this position are of removed messages; 0: none are
	gaps   bool           // so are others, which stand in `unlisted`
}

// indexState reads the watermark, and which rows of the index are of removed messages.
func (x *rx) indexState() (u unindexed, err error) {
	_, err = x.c.Row(func(r *sqlite.Rows) {
		u.after = relay.Position(r.Int(0))
		if unlisted := relay.Position(r.Int(1)); unlisted != 0 {
			u.oldest = relay.Position(r.Int(2))
			if r.Null(2) {
				u.oldest = unlisted + 1
			}
			u.gaps = unlisted > u.oldest
		}
	}, "SELECT value, (SELECT max(position) FROM unlisted), (SELECT min(position) FROM message) FROM setting WHERE name = 'indexed_upto'")
	return u, err
}

// findUnindexed looks for the messages of a Mecha in [from, to) that the index may
// lack. With pending, it may leave out all but received messages that are pending.
func (x *rx) findUnindexed(id relay.MechaNumber, from, to relay.Position, pending bool) (unindexed, error) {
	if id == 0 {
		return unindexed{none: true}, nil
	}
	u, err := x.indexState()
	if err != nil {
		return u, err
	}
	u.mecha = id
	positions, many, known := x.late.of(id, u.after, from, to, pending)
	if known && !many {
		u.none = len(positions) == 0
		u.list = jsonList(positions, func(p relay.Position) relay.Position { return p })
	}
	return u, nil
}

// query makes a query for the positions of the messages in [from, to); "" if there are
// none. open and done say which of the received ones are wanted.
func (u unindexed) query(d relay.Direction, open, done bool, from, to relay.Position) (text string, args []any) {
	if u.none || u.mecha == 0 {
		return "", nil
	}
	// One bound at each end. With two lower bounds, SQLite might begin at the lower one.
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

// indexNow indexes a message at once, unless this process serves. Another process must
// not index late, because the server's late index would not have its message.
func (t *tx) indexNow(p relay.Position, recipient, sender relay.MechaNumber) error {
	if t.w.opts.Serve {
		return nil
	}
	if err := t.c.Exec("INSERT INTO received (mecha, open, position) VALUES (?, 1, ?)", int64(recipient), int64(p)); err != nil {
		return err
	}
	return t.c.Exec("INSERT INTO sent (mecha, position) VALUES (?, ?)", int64(sender), int64(p))
}

// markDone moves a message's row to those that are not pending. A message that is not
// indexed yet needs nothing: its row will have the message's state of that time.
func (t *tx) markDone(m *relay.Message) error {
	r := mailboxRow{m.Recipient, m.Position}
	t.settled = append(t.settled, r)
	if s := t.late.collecting; s != nil && s.hasPending(r) { // without the mutex, since only the writer changes it
		return nil
	}
	return t.c.Exec("UPDATE received SET open = 0 WHERE mecha = ? AND open = 1 AND position = ?", int64(m.Recipient), int64(m.Position))
}

// segmentWriter is the rider that inserts the rows of a segment, some with each
// transaction.
type segmentWriter struct {
	w              *writer
	index          *lateIndex
	received, sent []mailboxRow            // the rows of the segment that are still to be inserted, in the order of the tables
	gone           map[relay.Position]bool // messages of the segment that were removed since it was sealed
	upto           relay.Position          // the end of the segment
	due            int                     // how many rows of each table may be inserted now
	tried          int                     // how many rows of each table the present transaction inserts
}

// start reads the messages after the watermark, which a killed server has not indexed,
// or only some of them. They are the first segment.
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
		p, to := relay.Position(r.Int(0)), relay.MechaNumber(r.Int(1))
		if all.add(p, to, relay.MechaNumber(r.Int(2))); r.Int(3) == 0 {
			all.remove(mailboxRow{to, p})
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

// next begins to insert the segment that has been collected.
func (s *segmentWriter) next() {
	of := s.index.seal(s.w.last)
	s.received, s.sent, s.upto, s.due, s.gone = sorted(of.received, of.count), sorted(of.sent, of.count), of.upto, 0, nil
}

// board inserts rows of the segment, if enough are due. It also tells the late index
// the messages of the transaction, because a read may see them as soon as COMMIT has
// begun.
func (s *segmentWriter) board(t *tx) error {
	if s.index.collecting == nil {
		return nil // this process does not serve, so it has indexed its messages at once
	}
	s.tried = 0
	if n := len(s.received); n > 0 {
		s.due += rowsPerMessage * len(t.brought.Messages)
		if s.due >= min(leastRows, n) {
			s.tried = min(s.due, n)
		}
	}
	s.index.expect(t.brought.Messages)
	return s.insert(t)
}

func (s *segmentWriter) insert(t *tx) error {
	if s.tried == 0 {
		return nil
	}
	c := t.c
	err := c.Exec(`INSERT OR IGNORE INTO received (mecha, open, position) SELECT m.recipient, m.open, m.position
		FROM json_each(?) j CROSS JOIN message m ON m.position = j.value`, jsonList(s.received[:s.tried], func(r mailboxRow) relay.Position { return r.position }))
	if err != nil {
		return err
	}
	if err := insertSent(c, s.without(t.removed, s.sent[:s.tried])); err != nil || s.tried < len(s.received) {
		return err
	}
	return c.Exec("UPDATE setting SET value = ? WHERE name = 'indexed_upto'", int64(s.upto))
}

// without leaves out the rows of messages that were removed, by this transaction or
// since the segment was sealed. (Rows of received messages are made of the messages.)
func (s *segmentWriter) without(removed []removedMessage, rows []mailboxRow) []mailboxRow {
	if len(removed) == 0 && len(s.gone) == 0 {
		return rows
	}
	gone := maps.Clone(s.gone)
	if gone == nil {
		gone = map[relay.Position]bool{}
	}
	for _, m := range removed {
		gone[m.position] = true
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r mailboxRow) bool { return gone[r.position] })
}

const (
	insertOneSent = "INSERT OR IGNORE INTO sent (mecha, position) VALUES (?, ?)"
	sentAtOnce    = 32 // rows in one statement
)

// insertSent inserts the rows without reading the messages again, since the sender of
// a message never changes.
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

// arrived notes the rows that were committed. When the segment is indexed, and the next
// one is long enough, it begins to insert that.
func (s *segmentWriter) arrived(t *tx) {
	if s.index.collecting == nil {
		return
	}
	s.index.collect(t.settled, t.removed)
	for _, m := range t.removed {
		if len(s.received) > 0 && m.position <= s.upto {
			if s.gone == nil {
				s.gone = map[relay.Position]bool{}
			}
			s.gone[m.position] = true
		}
	}
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

// flush indexes all messages when the store closes. If that fails, the next start
// indexes them.
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
