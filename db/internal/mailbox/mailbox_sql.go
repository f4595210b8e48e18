package mailbox

import (
	"strings"

	"relay/db/internal/engine"
	"relay/db/internal/late"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// IndexedUpto reads the watermark: the index tables have all messages up to there.
func IndexedUpto(x *engine.Rx) (relay.Position, error) {
	p, err := x.C.Number("SELECT value FROM setting WHERE name = 'indexed_upto'")
	return relay.Position(p), err
}

// Unindexed says how to find the wanted messages that may be missing from the index: in a
// list of positions, which may include others, or by a scan from the watermark on. For a
// Mecha, it also says which rows of the index are of messages that were removed.
type Unindexed struct {
	Wanted
	after  relay.Position // the watermark
	list   string         // a JSON array of positions; "": scan
	None   bool           // the index has all messages
	Oldest relay.Position // all rows of the index before this position are of removed messages; 0 if none are
	Gaps   bool           // so are other rows, which are in `unlisted`
}

// indexState reads the watermark, and which rows of the index are of removed messages.
func indexState(x *engine.Rx) (u Unindexed, err error) {
	_, err = x.C.Row(func(r *sqlite.Rows) {
		u.after = relay.Position(r.Int(0))
		if unlisted := relay.Position(r.Int(1)); unlisted != 0 {
			u.Oldest = relay.Position(r.Int(2))
			if r.Null(2) {
				u.Oldest = unlisted + 1
			}
			u.Gaps = unlisted > u.Oldest
		}
	}, "SELECT value, (SELECT max(position) FROM unlisted), (SELECT min(position) FROM message) FROM setting "+
		"WHERE name = 'indexed_upto'")
	return u, err
}

// FindUnindexed looks for the messages of a Mecha in [from, to) that may be missing from
// the index. With pending, it may leave out all but received messages that are pending.
func FindUnindexed(x *engine.Rx, id relay.MechaNumber, from, to relay.Position, pending bool) (Unindexed, error) {
	if id == 0 {
		return Unindexed{None: true}, nil
	}
	u, err := indexState(x)
	if err != nil {
		return u, err
	}
	u.Wanted = Wanted{Mecha: id, pending: pending}
	u.find(x.TailIndex, from, to)
	return u, nil
}

// find sets where the wanted messages in [from, to) are found, if this process knows it.
func (u *Unindexed) find(index *late.Index[names.Message, relay.Position], from, to relay.Position) {
	if positions, many, known := index.Find(u.after, from, to, u.keys()...); known && !many {
		u.None = len(positions) == 0
		u.list = JSONList(positions, func(p relay.Position) relay.Position { return p })
	}
}

// rows returns the SQL after FROM that selects the rows of message with the wanted ones in
// [from, to).
func (u Unindexed) rows(from, to relay.Position) (text string, args []any) {
	if u.list != "" {
		return "json_each(?) j CROSS JOIN message m ON m.position = j.value WHERE TRUE", []any{u.list}
	}
	// One bound at each end. With two lower bounds, SQLite might begin at the lower one.
	return "message m WHERE m.position >= ? AND m.position < ?", []any{int64(max(from, u.after+1)), int64(to)}
}

// Query makes a query for the positions of the wanted messages in [from, to), or "". For a
// Mecha, d, open and done say which of its messages are wanted.
func (u Unindexed) Query(d relay.Direction, open, done bool, from, to relay.Position) (text string, args []any) {
	if u.None || u.Wanted == (Wanted{}) {
		return "", nil
	}
	rows, args := u.rows(from, to)
	rows = "SELECT m.position FROM " + rows
	switch {
	case u.Conversation != 0:
		return rows + " AND m.conversation = ?", append(args, u.Conversation)
	case u.Question != 0:
		return rows + " AND m.in_reply_to = ?", append(args, int64(u.Question))
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
		whose, args = append(whose, in), append(args, int64(u.Mecha))
	}
	if d != relay.In {
		whose, args = append(whose, "m.sender = ?"), append(args, int64(u.Mecha))
	}
	return rows + " AND (" + strings.Join(whose, " OR ") + ")", args
}

// Index indexes a message: a server behind, another process at once, because the server's
// write-behind index would not have its message.
func (room *Mailbox) Index(t *engine.Tx, m names.Message) error {
	if t.Store.Opts.Serve {
		t.TailIndex.Expect(m)
		return nil
	}
	return t.TailIndex.InsertOne(t.C, m)
}

// unindex deletes the rows of a removed message in `joined` and `reply`. The rows in the
// mailboxes are deleted later (unlist_sql.go).
func (room *Mailbox) unindex(t *engine.Tx, m names.Message) error {
	if m.Conversation != 0 {
		if err := t.C.Exec("DELETE FROM joined WHERE conversation = ? AND position = ?",
			m.Conversation, int64(m.At)); err != nil {
			return err
		}
	}
	if m.Question == 0 {
		return nil
	}
	return t.C.Exec("DELETE FROM reply WHERE question = ? AND position = ?", int64(m.Question), int64(m.At))
}

// MarkDone moves a message's row to the rows that are not pending. A message that is not
// indexed yet needs nothing: its row will get the message's state at that time.
func (room *Mailbox) MarkDone(t *engine.Tx, m *relay.Message) error {
	r := names.Row{Of: int64(m.Recipient), At: m.Position}
	room.settled = append(room.settled, r)
	if t.TailIndex.Collects(names.InPending, r) {
		return nil
	}
	return t.C.Exec("UPDATE received SET open = 0 WHERE mecha = ? AND open = 1 AND position = ?",
		int64(m.Recipient), int64(m.Position))
}

// StartIndex reads the messages after the watermark, which a killed server has not indexed
// completely.
func (room *Mailbox) StartIndex() error {
	w := room.w
	after, err := IndexedUpto(&engine.Rx{C: w.C, Caches: w.Caches})
	if err != nil {
		return err
	}
	return w.Caches.TailIndex.Start(after, func(add func(names.Message)) error {
		r := w.C.Query(`SELECT position, recipient, sender, coalesce(conversation, 0), coalesce(in_reply_to, 0), open
			FROM message WHERE position > ? ORDER BY position`, int64(after))
		for r.Next() {
			add(names.Message{At: relay.Position(r.Int(0)), Recipient: relay.MechaNumber(r.Int(1)),
				Sender: relay.MechaNumber(r.Int(2)), Conversation: r.Int(3), Question: relay.Position(r.Int(4)),
				Done: r.Int(5) == 0})
		}
		return r.Close()
	})
}

func setIndexed(c *sqlite.Conn, upto relay.Position) error {
	return c.Exec("UPDATE setting SET value = ? WHERE name = 'indexed_upto'", int64(upto))
}

// A tailTable is an index table whose rows never change. So they are inserted without
// reading the messages again.
type tailTable struct{ one, many string } // statements for one row and for atOnce

const atOnce = 32 // rows in one statement

var sentTable, joinedTable, replyTable = newTailTable("sent (mecha, position)"),
	newTailTable("joined (conversation, position)"), newTailTable("reply (question, position)")

func newTailTable(columns string) *tailTable {
	one := "INSERT OR IGNORE INTO " + columns + " VALUES (?, ?)"
	return &tailTable{one: one, many: one + strings.Repeat(", (?, ?)", atOnce-1)}
}

func (l *tailTable) insert(c *sqlite.Conn, rows []names.Row) error {
	args := make([]any, 0, 2*atOnce)
	for len(rows) > 0 {
		n, text := atOnce, l.many
		if len(rows) < n {
			n, text = 1, l.one
		}
		args = args[:0]
		for _, r := range rows[:n] {
			args = append(args, r.Of, int64(r.At))
		}
		if err := c.Exec(text, args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insertReceived inserts rows of `received`, with the messages' present state.
func insertReceived(c *sqlite.Conn, rows []names.Row) error {
	return c.Exec(`INSERT OR IGNORE INTO received (mecha, open, position) SELECT m.recipient, m.open, m.position
		FROM json_each(?) j CROSS JOIN message m ON m.position = j.value`,
		JSONList(rows, func(r names.Row) relay.Position { return r.At }))
}
