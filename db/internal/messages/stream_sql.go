package messages

import (
	"context"
	"math"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Stream reads a piece of a Mecha's incoming stream, in commit order (PROTOCOL §4, The
// stream). The piece may be empty although End is false.
func (m *Messages) Stream(ctx context.Context, q relay.StreamQuery) (relay.StreamPage, error) {
	t := m.w.Readers.Point(q.Mecha)
	// the reads of sockets are never refused: a socket has one at a time, and the number of sockets is bounded
	t.MaxWaiting = readers.AnyNumber
	return engine.Get(ctx, m.w.In(t), func(x *engine.Rx) (relay.StreamPage, error) { return stream(x, q) })
}

func stream(x *engine.Rx, q relay.StreamQuery) (relay.StreamPage, error) {
	h := relay.HistoryQuery{Mecha: q.Mecha, Direction: relay.In}
	if q.PendingOnly {
		h.State = relay.OnlyPending
	}
	pr := Range{from: q.After + 1, To: math.MaxInt64, Limit: q.Limit}
	var err error
	if pr.Unindexed, err = mailbox.FindUnindexed(x, q.Mecha, pr.from, pr.To, q.PendingOnly); err != nil {
		return relay.StreamPage{}, err
	}
	text, args := pr.Query(h)
	busy, err := x.C.Row(nil, "SELECT 1 FROM attempt INDEXED BY attempt_recipient WHERE recipient = ? LIMIT 1",
		int64(q.Mecha))
	if err != nil {
		return relay.StreamPage{}, err
	}
	return streamRows(x, q, x.C.Query(text, args...), busy)
}

// streamRows reads a page. It leaves out the messages that the recipient has deferred.
// busy says that there may be some, because the table attempt has rows of the Mecha.
func streamRows(x *engine.Rx, q relay.StreamQuery, r *sqlite.Rows, busy bool) (relay.StreamPage, error) {
	p := relay.StreamPage{Upto: q.After, End: true}
	scanned, bytes := 0, 0
	for r.Next() {
		m, err := readMessage(x, r)
		if err != nil {
			r.Close()
			return p, err
		}
		if bytes += m.PayloadBytes; len(p.Messages) > 0 && bytes > q.MaxBytes && !q.NoPayload {
			p.End = false
			break
		}
		scanned++
		p.Upto = m.Position
		if m.State != relay.Expired {
			p.Messages = append(p.Messages, m)
		}
	}
	if err := r.Close(); err != nil {
		return p, err
	}
	if scanned == q.Limit {
		p.End = false
	}
	if p.End {
		upto, err := Latest(x)
		if err != nil {
			return p, err
		}
		p.Upto = max(p.Upto, upto)
	}
	if busy {
		if err := leaveDeferred(x, &p); err != nil {
			return p, err
		}
	}
	if q.NoPayload {
		return p, nil
	}
	for _, m := range p.Messages {
		var err error
		if m.Payload, err = payload(x, m.Position); err != nil {
			return p, err
		}
	}
	return p, nil
}

// Latest returns the position of the newest message, or 0.
func Latest(x *engine.Rx) (p relay.Position, err error) {
	_, err = x.C.Row(func(r *sqlite.Rows) { p = relay.Position(r.Int(0)) }, "SELECT max(position) FROM message")
	return p, err
}

// Latest returns the position of the newest committed message, or 0.
func (m *Messages) Latest(ctx context.Context) (relay.Position, error) {
	return engine.Get(ctx, m.w.In(m.w.Readers.Key()), Latest)
}
