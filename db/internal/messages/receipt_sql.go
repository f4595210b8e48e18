package messages

import (
	"context"
	"fmt"

	"relay/db/internal/engine"
	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Receipts reads a piece of the changes of the messages that a Mecha has sent, in commit
// order, as OnCommit brings them (PROTOCOL §4, Frames). The piece may be empty although
// End is false. Any goroutine may call it.
func (m *Messages) Receipts(ctx context.Context, q relay.ReceiptQuery) (relay.ReceiptPage, error) {
	t := m.w.Readers.Scan(q.Sender)
	t.MaxWaiting = readers.AnyNumber // for the same reason as in Stream
	return engine.Get(ctx, m.w.In(t), func(x *engine.Rx) (relay.ReceiptPage, error) { return receipts(x, q) })
}

func receipts(x *engine.Rx, q relay.ReceiptQuery) (relay.ReceiptPage, error) {
	p := relay.ReceiptPage{Upto: q.After}
	r :=
		x.C.Query(`SELECT r.position, m.sender, r.message, m.recipient, r.state, r.status, r.detail, m.expires_at, r.notice
		FROM receipt r CROSS JOIN message m ON m.position = r.message
		WHERE r.position > ? ORDER BY r.position LIMIT ?`, int64(q.After), int64(q.Limit))
	scanned := 0
	for ; r.Next(); scanned++ {
		p.Upto = relay.Position(r.Int(0))
		if relay.MechaNumber(r.Int(1)) != q.Sender || !relay.Notice(r.Int(8)).ForSender() {
			continue
		}
		c, err := readReceipt(x, r)
		if err != nil {
			r.Close()
			return p, err
		}
		p.Changes = append(p.Changes, c)
	}
	p.End = scanned < q.Limit
	return p, r.Close()
}

// readReceipt makes a Change of a row of the query in receipts.
func readReceipt(x *engine.Rx, r *sqlite.Rows) (relay.Change, error) {
	c := relay.Change{
		Receipt: relay.Position(r.Int(0)), Sender: relay.MechaNumber(r.Int(1)), Position: relay.Position(r.Int(2)),
		Recipient: relay.MechaNumber(r.Int(3)), State: relay.State(r.Int(4)), Detail: r.Text(6), New: true,
	}
	c.ID, c.At, c.Notice = x.IDs.Message(c.Position), c.Receipt.Time(), relay.Notice(r.Int(8))
	if !c.Notice.Known() {
		return c, fmt.Errorf("%w: the receipt at position %d has the notice %d, which does not exist",
			sqlite.ErrDamaged, c.Receipt, c.Notice)
	}
	if c.Notice == relay.NoticeSpent { // for the sender it is an acknowledgement like others
		c.Notice = relay.NoNotice
	}
	if c.State == relay.Expired {
		c.At = relay.UnixMilli(r.Int(7))
	}
	if r.Null(5) {
		return c, nil
	}
	var err error
	c.Status, err = engine.Word(x, r.Int(5))
	return c, err
}
