package db

import (
	"context"
	"math"
	"strings"

	"relay/db/relay"
)

const (
	pageScan  = 10_000  // rows that a filtered page looks at, at most
	pageBytes = 4 << 20 // payload bytes after which a page ends early
)

// filtered tells whether rows in the range may be unwanted.
func filtered(q relay.HistoryQuery) bool {
	return q.State != relay.AnyState || q.Peer != "" || q.Type != "" || q.Priority != "" || q.Conversation != ""
}

// matches applies the conditions of q that the choice of index has not.
func matches(q relay.HistoryQuery, m *relay.Message) bool {
	mine := q.Mecha == 0 || m.Recipient == q.Mecha && q.Direction != relay.Out || m.Sender == q.Mecha && q.Direction != relay.In
	if !mine || !q.State.Matches(m.State) {
		return false
	}
	if q.Peer != "" {
		sent := m.Sender == q.Mecha && m.To == q.Peer && q.Direction != relay.In
		received := m.Recipient == q.Mecha && m.From == q.Peer && q.Direction != relay.Out
		if !sent && !received {
			return false
		}
	}
	return (q.Type == "" || q.Type == m.Type) && (q.Priority == "" || q.Priority == m.Priority)
}

// History reads a page. Errors: CursorNotFound, ConversationNotFound and
// NotAParticipant (with MustTakePart).
func (d *DB) History(ctx context.Context, q relay.HistoryQuery) (p relay.Page, err error) {
	err = d.read(ctx, func(x *rx) error {
		p, err = x.history(q)
		return err
	})
	return p, err
}

func (x *rx) history(q relay.HistoryQuery) (relay.Page, error) {
	pr, err := x.positionRange(q)
	if err != nil {
		return relay.Page{}, err
	}
	pr.conversation, err = x.conversationFilter(q)
	if err != nil {
		return relay.Page{}, err
	}
	if pr.conversation == newLabel {
		return relay.Page{Next: cursorOf(q)}, nil // a label that nobody used
	}
	pr.limit = q.Limit + 1
	if filtered(q) {
		pr.limit = pageScan + 1
	}
	if pr.conversation == 0 {
		if pr.unindexed, err = x.findUnindexed(q.Mecha, pr.from, pr.to, q.Direction == relay.In && q.State == relay.OnlyPending); err != nil {
			return relay.Page{}, err
		}
	}
	p, err := x.scan(q, pr)
	if err == nil && q.Payload {
		err = x.addPayloads(q, &p)
	}
	return p, err
}

// cursorOf is the one that an empty page gives back.
func cursorOf(q relay.HistoryQuery) relay.MessageID {
	if q.Descending {
		return q.Before
	}
	return q.After
}

// conversationFilter resolves q.Conversation: 0 for none, newLabel if nothing can match.
func (x *rx) conversationFilter(q relay.HistoryQuery) (int64, error) {
	number, err := x.conversationNumber(q.Conversation)
	if relay.ErrorCode(err) == relay.ConversationNotFound && !q.MustTakePart {
		return newLabel, nil
	}
	if err != nil || !q.MustTakePart {
		return number, err
	}
	in := false
	if number != newLabel {
		if in, err = x.participates(number, q.Mecha); err != nil {
			return 0, err
		}
	}
	if !in {
		return 0, relay.Errorf(relay.NotAParticipant, "you have neither sent nor received a message in %s", relay.Quote(string(q.Conversation)))
	}
	return number, nil
}

// scan walks the positionRange in order and keeps what matches, up to the limits.
func (x *rx) scan(q relay.HistoryQuery, pr positionRange) (relay.Page, error) {
	p := relay.Page{Next: cursorOf(q)}
	text, args := pr.query(q)
	r := x.c.Query(text, args...)
	scanned := 0
	var last relay.Position
	for r.Next() {
		if len(p.Messages) == q.Limit || scanned == pageScan {
			p.More = true
			break
		}
		m, err := x.readMessage(r)
		if err != nil {
			r.Close()
			return relay.Page{}, err
		}
		scanned++
		last = m.Position
		if matches(q, m) {
			p.Messages = append(p.Messages, m)
		}
	}
	if err := r.Close(); err != nil {
		return relay.Page{}, err
	}
	switch n := len(p.Messages); {
	case p.More && scanned == pageScan && n < q.Limit:
		p.Next = x.ids.Message(last) // go on behind what was scanned at, or a client would stand still
	case n > 0:
		p.Next = p.Messages[n-1].ID
	}
	return p, nil
}

func (x *rx) addPayloads(q relay.HistoryQuery, p *relay.Page) error {
	total := 0
	for i, m := range p.Messages {
		if m.Recipient != q.Mecha {
			continue
		}
		if total += m.PayloadBytes; total > pageBytes && i > 0 {
			p.Messages, p.More, p.Next = p.Messages[:i], true, p.Messages[i-1].ID
			return nil
		}
		body, err := x.payload(m.Position)
		if err != nil {
			return err
		}
		m.Payload = body
	}
	return nil
}

// positionRange is a range of positions and the rows in it that an index gives.
type positionRange struct {
	from, to     relay.Position // from inclusive, to exclusive
	conversation int64          // 0: none
	limit        int            // rows
	unindexed    unindexed      // of the Mecha's own messages, those that the index may lack
}

func (x *rx) positionRange(q relay.HistoryQuery) (positionRange, error) {
	pr := positionRange{from: 0, to: math.MaxInt64}
	if !q.Since.IsZero() {
		pr.from = relay.PositionFrom(q.Since)
	}
	if !q.Until.IsZero() {
		pr.to = relay.PositionFrom(q.Until)
	}
	if q.After != "" {
		p, err := x.ids.Cursor(q.After)
		if err != nil {
			return pr, err
		}
		pr.from = max(pr.from, p+1)
	}
	if q.Before != "" {
		p, err := x.ids.Cursor(q.Before)
		if err != nil {
			return pr, err
		}
		pr.to = min(pr.to, p)
	}
	return pr, nil
}

// Cursor gives the position of a message id, or CursorNotFound if the relay
// never issued it. The message itself may be long gone.
func (d *DB) Cursor(id relay.MessageID) (relay.Position, error) { return d.ids.Cursor(id) }

// The ranges of the indexes that a page can be made of; each is in commit order.
// UNION merges them and leaves out what two of them have: a message to oneself
// is received once, and what has just been indexed may still be listed as late.
// CROSS JOIN keeps the walk over them outermost, so that the page comes in their
// order without a sort: ORDER BY would sort 10,000 rows to yield 100.
const (
	wholeRange     = "SELECT position FROM message WHERE position >= ? AND position < ?"
	inRange        = "SELECT position FROM received WHERE mecha = ? AND open = ? AND position >= ? AND position < ?"
	outRange       = "SELECT position FROM sent WHERE mecha = ? AND position >= ? AND position < ?"
	joinedRange    = "SELECT position FROM message INDEXED BY message_conversation WHERE conversation = ? AND position >= ? AND position < ?"
	foundingRange  = "SELECT position FROM message WHERE position = ? AND conversation IS NULL AND position >= ? AND position < ?"
	pageOfMessages = "SELECT " + messageColumns + " FROM (%RANGES% ORDER BY position %ORDER% LIMIT ?) p CROSS JOIN message m ON m.position = p.position LEFT JOIN receipt a ON a.position = m.ack"
)

// query composes the ranges into one ordered, bounded walk. SQLite merges them
// as it goes, so the cost is that of the rows it yields.
func (pr positionRange) query(q relay.HistoryQuery) (string, []any) {
	var ranges []string
	var args []any
	add := func(text string, first ...any) {
		ranges = append(ranges, text)
		args = append(append(args, first...), int64(pr.from), int64(pr.to))
	}
	mayBeOpen := q.State != relay.OnlyAcknowledged
	mayBeDone := q.State == relay.AnyState || q.State == relay.OnlyAcknowledged || q.State == relay.OnlyExpired
	switch {
	case pr.conversation > 0:
		add(joinedRange, pr.conversation)
		add(foundingRange, pr.conversation)
	case pr.conversation < 0:
		add(joinedRange, pr.conversation)
	default:
		pr.addOwn(q, mayBeOpen, mayBeDone, add)
		if late, more := pr.unindexed.query(q.Direction, mayBeOpen, mayBeDone, pr.from, pr.to); late != "" {
			ranges, args = append(ranges, late), append(args, more...)
		}
	}
	order := "ASC"
	if q.Descending {
		order = "DESC"
	}
	return composed(ranges, order), append(args, int64(pr.limit))
}

// addOwn adds the ranges of a Mecha's own messages, only those that can hold what the state filter wants.
func (pr positionRange) addOwn(q relay.HistoryQuery, mayBeOpen, mayBeDone bool, add func(string, ...any)) {
	if q.Mecha == 0 {
		add(wholeRange)
		return
	}
	if q.Direction != relay.Out && mayBeOpen {
		add(inRange, int64(q.Mecha), int64(1))
	}
	if q.Direction != relay.Out && mayBeDone {
		add(inRange, int64(q.Mecha), int64(0))
	}
	if q.Direction != relay.In {
		add(outRange, int64(q.Mecha))
	}
}

func composed(ranges []string, order string) string {
	text := strings.Replace(pageOfMessages, "%RANGES%", strings.Join(ranges, " UNION "), 1)
	return strings.ReplaceAll(text, "%ORDER%", order)
}
