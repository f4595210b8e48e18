package db

import (
	"maps"
	"slices"
	"strings"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// indexedUpto reads the watermark: the index tables have all messages up to there.
func indexedUpto(x *rx) (relay.Position, error) {
	p, err := x.c.Number("SELECT value FROM setting WHERE name = 'indexed_upto'")
	return relay.Position(p), err
}

// unindexed says how to find the wanted messages that the index may lack: in a list of
// positions, which may have others, too, or by a scan from the watermark on. For a Mecha, it
// also says which rows of the index are of messages that were removed.
type unindexed struct {
	wanted
	after  relay.Position // the watermark
	list   string         // a JSON array of positions; "": scan
	none   bool           // the index lacks no message
	oldest relay.Position // all rows of the index before this position are of removed messages; 0: none are
	gaps   bool           // so are others, which stand in `unlisted`
}

// indexState reads the watermark, and which rows of the index are of removed messages.
func indexState(x *rx) (u unindexed, err error) {
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
func findUnindexed(x *rx, id relay.MechaNumber, from, to relay.Position, pending bool) (unindexed, error) {
	if id == 0 {
		return unindexed{none: true}, nil
	}
	u, err := indexState(x)
	if err != nil {
		return u, err
	}
	u.wanted = wanted{mecha: id, pending: pending}
	u.find(x.late, from, to, nil)
	return u, nil
}

// find sets where the wanted messages in [from, to) are found, if this process knows. own
// are messages that it has not committed yet.
func (u *unindexed) find(late *lateIndex, from, to relay.Position, own []indexedMessage) {
	positions, many, known := late.find(u.wanted, u.after, from, to)
	if !known || many {
		return
	}
	for _, m := range own {
		if u.has(m) {
			positions = append(positions, m.position)
		}
	}
	u.none = len(positions) == 0
	u.list = jsonList(positions, func(p relay.Position) relay.Position { return p })
}

// rows gives the rows of message among which the wanted ones in [from, to) are: what follows
// FROM, up to a condition.
func (u unindexed) rows(from, to relay.Position) (text string, args []any) {
	if u.list != "" {
		return "json_each(?) j CROSS JOIN message m ON m.position = j.value WHERE TRUE", []any{u.list}
	}
	// One bound at each end. With two lower bounds, SQLite might begin at the lower one.
	return "message m WHERE m.position >= ? AND m.position < ?", []any{int64(max(from, u.after+1)), int64(to)}
}

// query makes a query for the positions of the wanted messages in [from, to); "" if there are
// none. For a Mecha, d, open and done say which of its messages are wanted.
func (u unindexed) query(d relay.Direction, open, done bool, from, to relay.Position) (text string, args []any) {
	if u.none || u.wanted == (wanted{}) {
		return "", nil
	}
	rows, args := u.rows(from, to)
	rows = "SELECT m.position FROM " + rows
	switch {
	case u.conversation != 0:
		return rows + " AND m.conversation = ?", append(args, u.conversation)
	case u.question != 0:
		return rows + " AND m.in_reply_to = ?", append(args, int64(u.question))
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
	return rows + " AND (" + strings.Join(whose, " OR ") + ")", args
}

// index indexes a message: a server late, another process at once, because the server's late
// index would not have its message.
func (room *mailbox) index(t *tx, m indexedMessage) error {
	if t.w.opts.Serve {
		room.inserted = append(room.inserted, m)
		return nil
	}
	if err := t.c.Exec("INSERT INTO received (mecha, open, position) VALUES (?, 1, ?)", int64(m.recipient), int64(m.position)); err != nil {
		return err
	}
	s := newSegment(0)
	s.add(m)
	for _, r := range s.lateRows() {
		if err := r.insert(t.c, r.rows); err != nil {
			return err
		}
	}
	return nil
}

// unindex deletes the rows of a removed message in `joined` and `reply`. Those in the
// mailboxes go later (unlist_sql.go).
func (room *mailbox) unindex(t *tx, m indexedMessage) error {
	if m.conversation != 0 {
		if err := t.c.Exec("DELETE FROM joined WHERE conversation = ? AND position = ?", m.conversation, int64(m.position)); err != nil {
			return err
		}
	}
	if m.question == 0 {
		return nil
	}
	return t.c.Exec("DELETE FROM reply WHERE question = ? AND position = ?", int64(m.question), int64(m.position))
}

// markDone moves a message's row to those that are not pending. A message that is not
// indexed yet needs nothing: its row will have the message's state of that time.
func (room *mailbox) markDone(t *tx, m *relay.Message) error {
	r := indexRow{int64(m.Recipient), m.Position}
	room.settled = append(room.settled, r)
	if s := t.late.collecting; s != nil && s.pending.has(r) { // without the mutex, since only the writer changes it
		return nil
	}
	return t.c.Exec("UPDATE received SET open = 0 WHERE mecha = ? AND open = 1 AND position = ?", int64(m.Recipient), int64(m.Position))
}

// segmentWriter inserts the rows of a segment, some with each
// transaction. Those of a transaction are neighbours in one table, because each table that a
// transaction inserts into costs it a page at each end of the rows, and the one above them.
type segmentWriter struct {
	box   *mailbox
	w     *writer
	index *lateIndex
	rest  []tableRows             // the rows of the segment that are still to be inserted, one table after the other; none is empty
	gone  map[relay.Position]bool // messages of the segment that were removed since it was sealed
	upto  relay.Position          // the end of the segment
	due   int                     // how many rows may be inserted now
	tried int                     // how many rows of the first table the present transaction inserts
}

// start reads the messages after the watermark, which a killed server has not indexed,
// or only some of them. They are the first segment.
func (s *segmentWriter) start() error {
	w := s.w
	x := rx{c: w.c, lookups: w.lookups}
	after, err := indexedUpto(&x)
	if err != nil {
		return err
	}
	all := newSegment(after)
	s.index.collecting = all
	r := w.c.Query(`SELECT position, recipient, sender, coalesce(conversation, 0), coalesce(in_reply_to, 0), open
		FROM message WHERE position > ? ORDER BY position`, int64(after))
	for r.Next() {
		m := indexedMessage{relay.Position(r.Int(0)), relay.MechaNumber(r.Int(1)), relay.MechaNumber(r.Int(2)), r.Int(3), relay.Position(r.Int(4))}
		if all.add(m); r.Int(5) == 0 {
			all.pending.remove(indexRow{int64(m.recipient), m.position})
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
	s.rest, s.upto, s.due, s.gone = nil, of.upto, 0, nil
	for _, r := range append(of.lateRows(), tableRows{insertReceived, of.received.sorted()}) { // received last: what is acknowledged before that needs no second change
		if len(r.rows) > 0 {
			s.rest = append(s.rest, r)
		}
	}
}

// board inserts rows of the segment, if enough are due. It also tells the late index
// the messages of the transaction, because a read may see them as soon as COMMIT has
// begun.
func (s *segmentWriter) board(t *tx) error {
	if s.index.collecting == nil {
		return nil // this process does not serve, so it has indexed its messages at once
	}
	s.tried = 0
	if len(s.rest) > 0 {
		n := len(s.rest[0].rows)
		s.due += rowsPerMessage * len(s.box.inserted)
		if s.due >= min(leastRows, n) {
			s.tried = min(s.due, n)
		}
	}
	s.index.expect(s.box.inserted)
	return s.insert(t)
}

func (s *segmentWriter) insert(t *tx) error {
	if s.tried == 0 {
		return nil
	}
	first := s.rest[0]
	if err := first.insert(t.c, s.without(s.box.removed, first.rows[:s.tried])); err != nil {
		return err
	}
	if len(s.rest) > 1 || s.tried < len(first.rows) {
		return nil
	}
	return t.c.Exec("UPDATE setting SET value = ? WHERE name = 'indexed_upto'", int64(s.upto))
}

// without leaves out the rows of messages that were removed, by this transaction or
// since the segment was sealed.
func (s *segmentWriter) without(removed []indexedMessage, rows []indexRow) []indexRow {
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
	return slices.DeleteFunc(slices.Clone(rows), func(r indexRow) bool { return gone[r.position] })
}

// A lateTable is an index table whose rows never change. So they are inserted without
// reading the messages again.
type lateTable struct{ one, many string } // statements for one row and for atOnce

const atOnce = 32 // rows in one statement

var sentTable, joinedTable, replyTable = newLateTable("sent (mecha, position)"), newLateTable("joined (conversation, position)"), newLateTable("reply (question, position)")

func newLateTable(columns string) *lateTable {
	one := "INSERT OR IGNORE INTO " + columns + " VALUES (?, ?)"
	return &lateTable{one: one, many: one + strings.Repeat(", (?, ?)", atOnce-1)}
}

func (l *lateTable) insert(c *sqlite.Conn, rows []indexRow) error {
	args := make([]any, 0, 2*atOnce)
	for len(rows) > 0 {
		n, text := atOnce, l.many
		if len(rows) < n {
			n, text = 1, l.one
		}
		args = args[:0]
		for _, r := range rows[:n] {
			args = append(args, r.of, int64(r.position))
		}
		if err := c.Exec(text, args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insertReceived inserts rows of `received`, which have the messages' state of now.
func insertReceived(c *sqlite.Conn, rows []indexRow) error {
	return c.Exec(`INSERT OR IGNORE INTO received (mecha, open, position) SELECT m.recipient, m.open, m.position
		FROM json_each(?) j CROSS JOIN message m ON m.position = j.value`, jsonList(rows, func(r indexRow) relay.Position { return r.position }))
}

// tableRows are rows of a table, in the order of its primary key.
type tableRows struct {
	insert func(*sqlite.Conn, []indexRow) error
	rows   []indexRow
}

// lateRows gives the rows of the tables other than `received`.
func (s *segment) lateRows() []tableRows {
	return []tableRows{{sentTable.insert, s.sent.sorted()}, {joinedTable.insert, s.joined.sorted()}, {replyTable.insert, s.replies.sorted()}}
}

// arrived notes the rows that were committed. When the segment is indexed, and the next
// one is long enough, it begins to insert that.
func (s *segmentWriter) arrived(t *tx) {
	if s.index.collecting == nil {
		return
	}
	s.index.collect(s.box.settled, s.box.removed)
	for _, m := range s.box.removed {
		if len(s.rest) > 0 && m.position <= s.upto {
			if s.gone == nil {
				s.gone = map[relay.Position]bool{}
			}
			s.gone[m.position] = true
		}
	}
	if s.tried > 0 {
		s.due -= s.tried
		if first := &s.rest[0]; s.tried < len(first.rows) {
			first.rows = first.rows[s.tried:]
		} else if s.rest = s.rest[1:]; len(s.rest) == 0 {
			s.index.finish()
		}
	}
	if len(s.rest) == 0 && s.index.collecting.count >= segmentLength {
		s.next()
	}
}

// left is how many rows of the segment are still to be inserted.
func (s *segmentWriter) left() (n int) {
	for _, r := range s.rest {
		n += len(r.rows)
	}
	return n
}

// flush indexes all messages when the store closes. If that fails, the next start
// indexes them.
func (s *segmentWriter) flush() {
	for s.index.collecting != nil && s.w.failed() == nil && !s.w.disk.low.Load() {
		if len(s.rest) == 0 {
			if s.index.collecting.count == 0 {
				return
			}
			s.next()
		}
		before := s.left()
		s.due = rowsWhenClosing
		s.w.commit(nil)
		if s.left() == before {
			return
		}
	}
}
