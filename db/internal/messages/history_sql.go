package messages

import (
	"context"
	"math"
	"slices"
	"strings"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

const (
	pageScan   = 10_000    // the maximum number of rows scanned for a page with filters
	pieceBytes = 256 << 10 // payload bytes that are read in one turn
	shortPage  = 100       // messages; such a page without filters is a point, not a scan
)

// PieceRows is how many rows a scan reads in one turn. It is a variable, so that tests
// can have many pieces of few messages.
var PieceRows = 500

// filtered reports whether the query may skip rows of its range.
func filtered(q relay.HistoryQuery) bool {
	return q.State != relay.AnyState || q.Peer != "" || q.Type != "" || q.Priority != "" || q.Conversation != ""
}

// History reads a page of a Mecha's messages (PROTOCOL §3, History). With filters, it
// scans up to 10,000 messages; with payloads, it ends after 4 MiB. Then the page may have
// fewer than Limit messages and More set. A long page is read in pieces, and each piece
// sees the file as of its turn. So a state may change between two pieces, but no message
// is repeated or left out, since positions only grow. Errors: CursorNotFound; with
// MustTakePart, ConversationNotFound and NotAParticipant; NotCurrent; RateLimited, if too
// many reads of the Mecha wait. Any goroutine may call it.
func (m *Messages) History(ctx context.Context, q relay.HistoryQuery) (relay.Page, error) {
	t := m.w.Readers.Scan(q.Mecha)
	if q.Limit <= shortPage && !filtered(q) && !q.Payload {
		t = m.w.Readers.Point(q.Mecha)
	}
	if err := m.w.AwaitQuery(ctx, q); err != nil {
		return relay.Page{}, err
	}
	return ReadPage(ctx, m.w.In(t), q)
}

// ReadPage reads a page in pieces. in is a method of a viewer.
func ReadPage(
	ctx context.Context, in func(context.Context, func(*engine.Rx) error) error, q relay.HistoryQuery,
) (relay.Page, error) {
	h := history{q: q}
	for !h.done {
		if err := in(ctx, h.goOn); err != nil {
			return relay.Page{Looked: h.page.Looked}, err
		}
	}
	return h.page, nil
}

// A history is a page that is being read.
type history struct {
	q     relay.HistoryQuery
	page  relay.Page
	rest  Range // the range that is still to be read
	begun bool
	last  relay.Position // the last row that was read
	found bool           // the page has all its messages; only payloads may be missing
	paid  int            // how many of the messages have their payload, or need none
	bytes int            // of payloads
	done  bool
}

// goOn reads the next piece of the page.
func (h *history) goOn(x *engine.Rx) (err error) {
	if !h.begun {
		err = h.begin(x)
	}
	switch {
	case err != nil || h.done:
		return err
	case !h.found:
		if err := h.lookThrough(x); err != nil || !h.found || h.q.Payload {
			return err
		}
		h.done = true
		return nil
	}
	return h.addPayloads(x)
}

// begin finds the range of the page. If no message can be in it, the page is done.
func (h *history) begin(x *engine.Rx) (err error) {
	h.begun, h.page.Next = true, cursorOf(h.q)
	if h.rest, err = rangeOf(x, h.q); err != nil {
		return err
	}
	h.rest.Conversation, err = conversationFilter(x, h.q)
	h.done = h.rest.Conversation == NewLabel // a label that nobody used
	return err
}

// cursorOf returns the cursor of the query, which an empty page returns.
func cursorOf(q relay.HistoryQuery) relay.MessageID {
	if q.Descending {
		return q.Before
	}
	return q.After
}

// conversationFilter returns the number of q.Conversation: 0 if it is not set, NewLabel
// if no message can be in it.
func conversationFilter(x *engine.Rx, q relay.HistoryQuery) (int64, error) {
	number, err := ConversationNumber(x, q.Conversation)
	if relay.ErrorCode(err) == relay.ConversationNotFound && !q.MustTakePart {
		return NewLabel, nil
	}
	if err != nil || !q.MustTakePart {
		return number, err
	}
	in := false
	if number != NewLabel {
		if in, err = Participates(x, number, q.Mecha); err != nil {
			return 0, err
		}
	}
	if !in {
		return 0, relay.Errorf(relay.NotAParticipant, "you have neither sent nor received a message in %s",
			relay.Quote(string(q.Conversation)))
	}
	return number, nil
}

// lookThrough reads the next PieceRows rows of the range, in order, and keeps the
// messages that match, within the limits.
func (h *history) lookThrough(x *engine.Rx) (err error) {
	if err := h.findUnindexed(x, &h.rest); err != nil {
		return err
	}
	if filtered(h.q) {
		return h.search(x)
	}
	q, p := h.q, &h.page
	rows := min(PieceRows, pageScan-p.Looked, q.Limit-len(p.Messages))
	h.rest.Limit = rows + 1 // one more, to see whether there is more
	text, args := h.rest.Query(q)
	found, more, err := Read(x, rows, text, args)
	if err != nil {
		return err
	}
	p.Messages, p.Looked = append(p.Messages, found...), p.Looked+len(found)
	if len(found) > 0 {
		h.moveOn(found[len(found)-1].Position)
	}
	h.found = !more || len(p.Messages) == q.Limit || p.Looked == pageScan
	p.More = h.found && more
	h.setNext(x)
	return nil
}

// search is lookThrough for a page with filters. SQLite applies the filters, which costs a
// third of reading all messages. SQLite does not count the rows that it scans, so search
// counts them in the index.
func (h *history) search(x *engine.Rx) error {
	q, p := h.q, &h.page
	where, args, possible, err := conditions(x, q)
	if err != nil || !possible {
		h.found = true
		return err
	}
	looked := h.rest
	looked.Limit = min(PieceRows, pageScan-p.Looked)
	text, of := looked.Query(q)
	found, _, err := Read(x, q.Limit-len(p.Messages), text+where, append(of, args...))
	if err != nil {
		return err
	}
	p.Messages = append(p.Messages, found...)
	full := len(p.Messages) == q.Limit
	if full { // the rows up to the last match
		looked.end(q, p.Messages[q.Limit-1].Position)
		if err := h.findUnindexed(x, &looked); err != nil {
			return err
		}
	}
	n, last, err := countRange(x, q, looked)
	if err != nil {
		return err
	}
	if p.Looked += n; n > 0 {
		h.moveOn(last)
	}
	switch {
	case full || p.Looked == pageScan:
		h.found, h.rest.Limit = true, 1
		if err := h.findUnindexed(x, &h.rest); err != nil {
			return err
		}
		n, _, err := countRange(x, q, h.rest)
		p.More = n > 0
		h.setNext(x)
		return err
	case n < looked.Limit:
		h.found = true
	}
	h.setNext(x)
	return nil
}

// findUnindexed finds out how to read the messages of the range that may be missing from the index.
func (h *history) findUnindexed(x *engine.Rx, pr *Range) (err error) {
	if pr.Conversation != 0 {
		pr.Unindexed, err = mailbox.FindJoined(x, pr.Conversation, pr.from, pr.To)
		return err
	}
	pr.Unindexed, err = mailbox.FindUnindexed(x, h.q.Mecha, pr.from, pr.To,
		h.q.Direction == relay.In && h.q.State == relay.OnlyPending)
	return err
}

// moveOn lets the range begin after the last row of a piece.
func (h *history) moveOn(last relay.Position) {
	h.last = last
	if h.q.Descending {
		h.rest.To = last
	} else {
		h.rest.from = last + 1
	}
}

// setNext sets the cursor once the range has been read.
func (h *history) setNext(x *engine.Rx) {
	p, n := &h.page, len(h.page.Messages)
	switch {
	case !h.found:
	case p.More && p.Looked == pageScan && n < h.q.Limit:
		p.Next = x.IDs.Message(h.last) // since a page without matches must still move the cursor
	case n > 0:
		p.Next = p.Messages[n-1].ID
	}
}

// Read reads up to limit messages of a query. more says that there is another.
func Read(x *engine.Rx, limit int, text string, args []any) (all []*relay.Message, more bool, err error) {
	return engine.Page(x.C.Query(text, args...), limit, func(r *sqlite.Rows) (*relay.Message, error) {
		return readMessage(x, r)
	})
}

// countRange counts the rows of a range up to its limit, and returns the last one.
func countRange(x *engine.Rx, q relay.HistoryQuery, pr Range) (n int, last relay.Position, err error) {
	positions, args := pr.positions(q)
	end := "max"
	if q.Descending {
		end = "min"
	}
	_, err = x.C.Row(func(r *sqlite.Rows) { n, last = int(r.Int(0)), relay.Position(r.Int(1)) },
		"SELECT count(*), "+end+"(position) FROM ("+positions+")", args...)
	return n, last, err
}

// addPayloads reads the payloads of received messages, up to pieceBytes. It shortens the
// page to relay.PageBytes, but not below one message. Messages that have been removed since
// the page was read leave it.
func (h *history) addPayloads(x *engine.Rx) error {
	p, piece := &h.page, 0
	for h.paid < len(p.Messages) && piece < pieceBytes {
		i, m := h.paid, p.Messages[h.paid]
		if m.Recipient != h.q.Mecha {
			h.paid++
			continue
		}
		piece += m.PayloadBytes
		if h.bytes += m.PayloadBytes; h.bytes > relay.PageBytes && i > 0 {
			p.Messages, p.More, p.Next = p.Messages[:i], true, p.Messages[i-1].ID
			break
		}
		body, kept, err := KeptPayload(x, m.Position)
		if err != nil {
			return err
		}
		if !kept {
			p.Messages = slices.Delete(p.Messages, i, i+1)
			continue
		}
		m.Payload = body
		h.paid++
	}
	h.done = h.paid == len(p.Messages)
	return nil
}

// Range is a range of positions, and how to find the messages in it.
type Range struct {
	from, To     relay.Position    // from is inclusive, to exclusive
	Conversation int64             // messages of this conversation; 0: of the query's Mecha
	Limit        int               // rows
	Unindexed    mailbox.Unindexed // the messages that may be missing from the index
}

// rangeOf returns the range that the times and cursors of a query select.
func rangeOf(x *engine.Rx, q relay.HistoryQuery) (Range, error) {
	pr := Range{from: 0, To: math.MaxInt64}
	if !q.Since.IsZero() {
		pr.from = relay.PositionFrom(q.Since)
	}
	if !q.Until.IsZero() {
		to, err := engine.UntilPosition(x, q.Until)
		if err != nil {
			return pr, err
		}
		pr.To = to
	}
	if q.After != "" {
		p, err := x.IDs.Cursor(q.After)
		if err != nil {
			return pr, err
		}
		pr.from = max(pr.from, p+1)
	}
	if q.Later != 0 {
		pr.from = max(pr.from, q.Later+1)
	}
	if q.Before != "" {
		p, err := x.IDs.Cursor(q.Before)
		if err != nil {
			return pr, err
		}
		pr.To = min(pr.To, p)
	}
	return pr, nil
}

// Cursor returns the position of a message id: CursorNotFound if the relay never issued the
// id; NotCurrent, if this node stays behind it. The message need not exist any more.
func (m *Messages) Cursor(id relay.MessageID) (relay.Position, error) {
	if err := m.w.AwaitMessage(context.Background(), id); err != nil {
		return 0, err
	}
	return m.w.IDs.Cursor(id)
}

// A page is made of ranges of indexes, each in commit order. UNION merges them and drops
// duplicates: a message to oneself is both received and sent, and a message that was just
// indexed may still be in the write-behind index. CROSS JOIN keeps the merged positions
// in the outer loop, so that the page comes in their order. A sort would read 10,000 rows
// to return 100.
const (
	wholeRange    = "SELECT position FROM message WHERE position >= ? AND position < ?"
	inRange       = "SELECT position FROM received r WHERE mecha = ? AND open = ? AND position >= ? AND position < ?"
	outRange      = "SELECT position FROM sent r WHERE mecha = ? AND position >= ? AND position < ?"
	stillListed   = " AND NOT EXISTS (SELECT 1 FROM unlisted u WHERE u.position = r.position)"
	foundingRange = "SELECT position FROM message WHERE position = ? AND conversation IS NULL AND position >= ? " +
		"AND position < ?"
)

// Query makes the query of the messages of the ranges, in order.
func (pr Range) Query(q relay.HistoryQuery) (string, []any) {
	positions, args := pr.positions(q)
	return AllAt(positions), args
}

// AllAt makes the query of the messages at the positions of another query, in its order.
func AllAt(positions string) string {
	return "SELECT " + messageColumns + " FROM (" + positions +
		") p CROSS JOIN message m ON m.position = p.position LEFT JOIN receipt a ON a.position = m.ack"
}

// positions makes one ordered query of the ranges. SQLite merges them row by row, so the
// cost depends on the returned rows alone.
func (pr Range) positions(q relay.HistoryQuery) (string, []any) {
	var ranges []string
	var args []any
	add := func(text string, first ...any) {
		ranges = append(ranges, text)
		args = append(append(args, first...), int64(max(pr.from, pr.Unindexed.Oldest)), int64(pr.To))
	}
	mayBeOpen := q.State != relay.OnlyAcknowledged
	mayBeDone := q.State == relay.AnyState || q.State == relay.OnlyAcknowledged || q.State == relay.OnlyExpired ||
		q.State == relay.OnlyDead
	switch {
	case pr.Conversation > 0:
		add(mailbox.JoinedRange, pr.Conversation)
		add(foundingRange, pr.Conversation)
	case pr.Conversation < 0:
		add(mailbox.JoinedRange, pr.Conversation)
	default:
		pr.addOwn(q, mayBeOpen, mayBeDone, add)
	}
	if late, more := pr.Unindexed.Query(q.Direction, mayBeOpen, mayBeDone, pr.from, pr.To); late != "" {
		ranges, args = append(ranges, late), append(args, more...)
	}
	order := " ORDER BY position LIMIT ?"
	if q.Descending {
		order = " ORDER BY position DESC LIMIT ?"
	}
	return strings.Join(ranges, " UNION ") + order, append(args, int64(pr.Limit))
}

// end ends the range with a position, in the order of q.
func (pr *Range) end(q relay.HistoryQuery, p relay.Position) {
	if q.Descending {
		pr.from = p
	} else {
		pr.To = p + 1
	}
}

// addOwn adds the ranges of a Mecha's messages. It leaves out those in which no message
// can match the state filter.
func (pr Range) addOwn(q relay.HistoryQuery, mayBeOpen, mayBeDone bool, add func(string, ...any)) {
	if q.Mecha == 0 {
		add(wholeRange)
		return
	}
	in, out := inRange, outRange
	if pr.Unindexed.Gaps {
		in, out = in+stillListed, out+stillListed
	}
	if q.Direction != relay.Out && mayBeOpen {
		add(inRange, int64(q.Mecha), int64(1)) // the rows of pending messages go with these
	}
	if q.Direction != relay.Out && mayBeDone {
		add(in, int64(q.Mecha), int64(0))
	}
	if q.Direction != relay.In {
		add(out, int64(q.Mecha))
	}
}
