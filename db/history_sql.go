package db

import (
	"context"
	"math"
	"strings"

	"relay/db/relay"
)

const (
	pageScan  = 10_000  // the most rows that are scanned for a page with filters
	pageBytes = 4 << 20 // payload bytes after which a page ends early
)

// filtered tells whether the query may not want some rows of its range.
func filtered(q relay.HistoryQuery) bool {
	return q.State != relay.AnyState || q.Peer != "" || q.Type != "" || q.Priority != "" || q.Conversation != ""
}

// matches applies the conditions of q that the range and its index do not ensure.
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

// History reads a page of a Mecha's messages (PROTOCOL §3, History). With filters, it
// scans up to 10,000 messages; with payloads, it ends after 4 MiB. Then the page may
// have fewer than Limit messages and More set. Errors: CursorNotFound; with
// MustTakePart, ConversationNotFound and NotAParticipant.
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

// cursorOf gives the cursor of the query, which an empty page returns.
func cursorOf(q relay.HistoryQuery) relay.MessageID {
	if q.Descending {
		return q.Before
	}
	return q.After
}

// conversationFilter gives the number of q.Conversation: 0 if it is not set, newLabel
// if no message can be in it.
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

// scan reads the range in order and keeps the messages that match, up to the limits.
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
		p.Next = x.ids.Message(last) // the last scanned message, since a page without matches must still move the cursor
	case n > 0:
		p.Next = p.Messages[n-1].ID
	}
	return p, nil
}

// addPayloads reads the payloads of received messages. It shortens the page to
// pageBytes, but not below one message.
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

// positionRange is a range of positions, and how to find the messages in it.
type positionRange struct {
	from, to     relay.Position // from is inclusive, to exclusive
	conversation int64          // messages of this conversation; 0: of the query's Mecha
	limit        int            // rows
	unindexed    unindexed      // the Mecha's messages that the index may lack
}

// positionRange gives the range that the times and cursors of a query select.
func (x *rx) positionRange(q relay.HistoryQuery) (positionRange, error) {
	pr := positionRange{from: 0, to: math.MaxInt64}
	if !q.Since.IsZero() {
		pr.from = relay.PositionFrom(q.Since)
	}
	if !q.Until.IsZero() {
		to, err := x.untilPosition(q.Until)
		if err != nil {
			return pr, err
		}
		pr.to = to
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

// Cursor gives the position of a message id: CursorNotFound if the relay never issued
// the id. The message need not exist any more.
func (d *DB) Cursor(id relay.MessageID) (relay.Position, error) { return d.ids.Cursor(id) }

// A page is made of ranges of indexes, each in commit order. UNION merges them and drops
// duplicates: a message to oneself is both received and sent, and a message that was
// just indexed may still be in the late index. CROSS JOIN keeps the merged positions in
// the outer loop, so that the page comes in their order. A sort would read 10,000 rows
// to give 100.
const (
	wholeRange     = "SELECT position FROM message WHERE position >= ? AND position < ?"
	inRange        = "SELECT position FROM received WHERE mecha = ? AND open = ? AND position >= ? AND position < ?"
	outRange       = "SELECT position FROM sent WHERE mecha = ? AND position >= ? AND position < ?"
	joinedRange    = "SELECT position FROM message INDEXED BY message_conversation WHERE conversation = ? AND position >= ? AND position < ?"
	foundingRange  = "SELECT position FROM message WHERE position = ? AND conversation IS NULL AND position >= ? AND position < ?"
	pageOfMessages = "SELECT " + messageColumns + " FROM (%RANGES% ORDER BY position %ORDER% LIMIT ?) p CROSS JOIN message m ON m.position = p.position LEFT JOIN receipt a ON a.position = m.ack"
)

// query makes one ordered query of the ranges. SQLite merges them row by row, so the
// cost is that of the rows it gives.
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

// addOwn adds the ranges of a Mecha's messages. It leaves out those in which no message
// can match the state filter.
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
