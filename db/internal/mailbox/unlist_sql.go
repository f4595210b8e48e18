package mailbox

import (
	"cmp"
	"slices"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/names"
	"relay/db/relay"
)

// The rows of removed messages in `received` and `sent` are on as many pages as there are
// Mechas. Like the rows of new messages (package late), they are not changed with each
// transaction: the table `unlisted` gets the messages, and the rows are deleted sorted,
// many at a time. Meanwhile reads skip them.

// Unlist has the rows of removed messages deleted from the mailboxes, and deletes their other
// rows in the index.
func (room *Mailbox) Unlist(t *engine.Tx, messages []names.Message) error {
	room.Removed = append(room.Removed, messages...)
	for _, m := range messages {
		if err := room.unindex(t, m); err != nil {
			return err
		}
		if t.Store.Opts.Serve {
			err := t.C.Exec("INSERT OR REPLACE INTO unlisted (position, recipient, sender) VALUES (?, ?, ?)",
				int64(m.At), int64(m.Recipient), int64(m.Sender))
			if err != nil {
				return err
			}
			continue
		}
		// Another process must leave nothing that a server would have to know.
		if err := deleteReceived(t, names.Row{Of: int64(m.Recipient), At: m.At}); err != nil {
			return err
		}
		if err := deleteSent(t, names.Row{Of: int64(m.Sender), At: m.At}); err != nil {
			return err
		}
	}
	return nil
}

func deleteReceived(t *engine.Tx, r names.Row) error {
	return t.C.Exec("DELETE FROM received WHERE mecha = ? AND open = 0 AND position = ?", r.Of, int64(r.At))
}

func deleteSent(t *engine.Tx, r names.Row) error {
	return t.C.Exec("DELETE FROM sent WHERE mecha = ? AND position = ?", r.Of, int64(r.At))
}

// MailboxCleaner deletes the rows of removed messages. It gathers some thousands of messages
// and then deletes their rows in the order of the tables, a piece with each call.
type MailboxCleaner struct {
	W              *engine.Store
	waiting        []names.Message  // removed, and not yet begun
	last           time.Duration    // when the latest of them was removed, in the running time
	received, sent []names.Row      // rows that are still to be deleted
	begun          []relay.Position // the messages of these rows
}

// These are variables, so that tests can have many pieces of few messages.
var (
	CleanAtOnce = 8192 // messages that are gathered
	CleanPiece  = 256  // rows in a piece
)

// CleanAfter is how long fewer messages wait for more before they are begun.
const CleanAfter = time.Second

// Start reads the messages that an earlier process has left.
func (u *MailboxCleaner) Start() error {
	r := u.W.C.Query("SELECT position, recipient, sender FROM unlisted ORDER BY position")
	for r.Next() {
		u.waiting = append(u.waiting, names.Message{At: relay.Position(r.Int(0)), Recipient: relay.MechaNumber(r.Int(1)),
			Sender: relay.MechaNumber(r.Int(2))})
	}
	return r.Close()
}

// Due reports whether rows should be deleted now.
func (u *MailboxCleaner) Due(now time.Duration) bool {
	return len(u.begun) > 0 || len(u.waiting) >= CleanAtOnce || len(u.waiting) > 0 && now-u.last >= CleanAfter
}

// Left reports whether there are rows to delete.
func (u *MailboxCleaner) Left() bool { return len(u.begun) > 0 || len(u.waiting) > 0 }

// Removed takes messages whose removal has been committed.
func (u *MailboxCleaner) Removed(messages []names.Message, running time.Duration) {
	if len(messages) > 0 {
		u.waiting, u.last = append(u.waiting, messages...), running
	}
}

// begin begins with the messages that wait.
func (u *MailboxCleaner) begin() {
	n := min(len(u.waiting), CleanAtOnce)
	for _, m := range u.waiting[:n] {
		u.begun = append(u.begun, m.At)
		u.received = append(u.received, names.Row{Of: int64(m.Recipient), At: m.At})
		u.sent = append(u.sent, names.Row{Of: int64(m.Sender), At: m.At})
	}
	u.waiting = slices.Clone(u.waiting[n:])
	for _, rows := range [][]names.Row{u.received, u.sent} {
		slices.SortFunc(rows, func(a, b names.Row) int {
			return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.At, b.At))
		})
	}
}

// A MailboxCleaning is a piece of the work of a MailboxCleaner, as a local write.
type MailboxCleaning struct {
	U                     *MailboxCleaner
	received, sent, begun int // how many rows Apply has deleted
}

func (l *MailboxCleaning) Size() int { return 0 }

func (l *MailboxCleaning) Apply(t *engine.Tx) error {
	u := l.U
	if len(u.begun) == 0 {
		u.begin()
	}
	l.received, l.sent, l.begun = min(len(u.received), CleanPiece), min(len(u.sent), CleanPiece), 0
	for _, r := range u.received[:l.received] {
		if err := deleteReceived(t, r); err != nil {
			return err
		}
	}
	for _, r := range u.sent[:l.sent] {
		if err := deleteSent(t, r); err != nil {
			return err
		}
	}
	if l.received > 0 || l.sent > 0 {
		return nil
	}
	l.begun = min(len(u.begun), 4*CleanPiece)
	return t.C.Exec("DELETE FROM unlisted WHERE position IN (SELECT value FROM json_each(?))",
		JSONList(u.begun[:l.begun], func(p relay.Position) relay.Position { return p }))
}

// Applied notes that a piece was committed.
func (u *MailboxCleaner) Applied(l *MailboxCleaning) {
	u.received, u.sent, u.begun = u.received[l.received:], u.sent[l.sent:], u.begun[l.begun:]
	if len(u.begun) == 0 {
		u.received, u.sent, u.begun = nil, nil, nil
	}
}
