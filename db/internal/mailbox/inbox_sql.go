package mailbox

import (
	"context"
	"math"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// InboxRows is how many messages an inbox counts in one turn. Counting is cheaper than
// reading. It is a variable, so that tests can have many pieces of few messages.
var InboxRows = 2000

// Inbox counts the pending messages of a Mecha (PROTOCOL §3, Inbox count). It reads them
// all, in pieces, each of which sees the file as of its turn. Errors: RateLimited, if too
// many reads of the Mecha wait. Any goroutine may call it.
func (m *Mailbox) Inbox(ctx context.Context, id relay.MechaNumber) (relay.Inbox, error) {
	i := NewInbox(id)
	for !i.Done {
		if err := m.w.As(id).Scan(ctx, i.GoOn); err != nil {
			return relay.Inbox{Looked: i.Looked}, err
		}
	}
	return i.Inbox, nil
}

// An inbox is a running count.
type inbox struct {
	relay.Inbox
	of             relay.MechaNumber
	oldest, newest relay.Position // of the messages that were counted
	from           relay.Position // messages from here on are still to be counted
	Done           bool
}

func NewInbox(of relay.MechaNumber) *inbox {
	return &inbox{Inbox: relay.Inbox{ByPriority: map[string]int{}}, of: of}
}

// GoOn counts the next piece. It finds the names of the priorities at once, because the
// words may be removed, with their messages, before the next piece.
func (i *inbox) GoOn(x *engine.Rx) error {
	pending, args, err := Pending(x, i.of, i.from, InboxRows)
	if err != nil {
		return err
	}
	rows, counts := 0, map[int64]int{} // by the number of the priority
	r := x.C.Query("SELECT priority, count(*), max(m.position), count(alive), min(alive), max(alive) "+
		"FROM (SELECT m.priority, m.position, "+
		"iif(m.expires_at IS NULL OR m.expires_at > ?, m.position, NULL) AS alive FROM ("+
		pending+`) p CROSS JOIN message m ON m.position = p.position) m
		GROUP BY priority`, append([]any{x.Now.UnixMilli()}, args...)...)
	for r.Next() {
		rows += int(r.Int(1))
		i.from = max(i.from, relay.Position(r.Int(2))+1)
		if n := int(r.Int(3)); n > 0 {
			counts[r.Int(0)] += n
			i.Pending += n
			if p := relay.Position(r.Int(4)); i.oldest == 0 || p < i.oldest {
				i.oldest = p
			}
			i.newest = max(i.newest, relay.Position(r.Int(5)))
		}
	}
	if err := r.Close(); err != nil {
		return err
	}
	for id, n := range counts {
		text, err := engine.Word(x, id)
		if err != nil {
			return err
		}
		i.ByPriority[text] += n
	}
	i.Looked += rows
	if i.Done = rows < InboxRows; i.Done && i.Pending > 0 {
		i.Oldest, i.Newest = x.IDs.Message(i.oldest), x.IDs.Message(i.newest)
	}
	return nil
}

// countOpen counts the pending messages of a Mecha, with those that are due to expire.
func countOpen(x *engine.Rx, id relay.MechaNumber) (int, error) {
	pending, args, err := Pending(x, id, 0, -1)
	if err != nil {
		return 0, err
	}
	all, err := x.C.Number("SELECT count(*) FROM ("+pending+")", args...)
	return int(all), err
}

// maxAhead bounds the cost of repeated requests. Hardly any caller needs to distinguish larger numbers.
const maxAhead = 1000

// CountAhead counts the pending messages of a Mecha before a position, up to maxAhead.
func CountAhead(x *engine.Rx, id relay.MechaNumber, before relay.Position) (int, error) {
	pending, args, err := Pending(x, id, 0, maxAhead)
	if err != nil {
		return 0, err
	}
	ahead, err := x.C.Number("SELECT count(*) FROM ("+pending+") WHERE position < ?", append(args, int64(before))...)
	return int(ahead), err
}

// Pending returns a query for the positions of a Mecha's pending messages from a position
// on, in order, up to limit rows. LIMIT -1 means no limit, and keeps the order, so that
// SQLite merges the parts without a sort.
func Pending(x *engine.Rx, id relay.MechaNumber, from relay.Position, limit int) (text string, args []any, err error) {
	u, err := FindUnindexed(x, id, from, math.MaxInt64, true)
	if err != nil {
		return "", nil, err
	}
	text, args = "SELECT position FROM received WHERE mecha = ? AND open = 1 AND position >= ?",
		[]any{int64(id), int64(from)}
	if late, more := u.Query(relay.In, true, false, from, math.MaxInt64); late != "" {
		text += " UNION " + late
		args = append(args, more...)
	}
	return text + " ORDER BY position LIMIT ?", append(args, int64(limit)), nil
}

// PendingOf returns how many messages are pending for a Mecha, with the changes of
// this transaction.
func (m *Mailbox) PendingOf(t *engine.Tx, id relay.MechaNumber) (int, error) {
	if n, ok := m.known(id); ok {
		return n, nil
	}
	n, err := countOpen(&t.Rx, id)
	if err == nil {
		m.counted[id] = n
	}
	return n, err
}

// AddPending changes the count of a Mecha's pending messages. It does nothing before
// PendingOf has counted them.
func (m *Mailbox) AddPending(t *engine.Tx, id relay.MechaNumber, delta int) {
	if n, ok := m.known(id); ok {
		m.counted[id] = n + delta
	}
}
