package messages

import (
	"context"
	"slices"

	"relay/db/internal/engine"
	"relay/db/internal/readers"
	"relay/db/relay"
)

// Returned reads a piece of the messages of a Mecha whose deferral has ended, in that order
// (PROTOCOL §3, Ack). The piece may be empty although End is false. Any goroutine may call
// it.
func (m *Messages) Returned(ctx context.Context, q relay.ReturnQuery) (relay.ReturnPage, error) {
	t := m.w.Readers.Point(q.Mecha)
	t.MaxWaiting = readers.AnyNumber // for the same reason as in Stream
	return engine.Get(ctx, m.w.In(t), func(x *engine.Rx) (relay.ReturnPage, error) { return returned(x, q) })
}

func returned(x *engine.Rx, q relay.ReturnQuery) (relay.ReturnPage, error) {
	p := relay.ReturnPage{Upto: q.After}
	var positions []relay.Position
	rows := 0
	r := x.C.Query(`SELECT message, again FROM attempt INDEXED BY attempt_recipient
		WHERE recipient = ? AND again > ? AND (until IS NULL OR key IS NOT NULL) ORDER BY again LIMIT ?`,
		int64(q.Mecha), int64(q.After), int64(q.Limit))
	for ; r.Next(); rows++ {
		p.Upto = relay.Position(r.Int(1))
		if m := relay.Position(r.Int(0)); m <= q.Before {
			positions = append(positions, m)
		}
	}
	if err := r.Close(); err != nil {
		return p, err
	}
	p.End = rows < q.Limit
	for _, at := range positions {
		m, err := At(x, at)
		if err != nil {
			return p, err
		}
		if m == nil || !m.State.Pending() {
			continue
		}
		if m.Payload, err = payload(x, at); err != nil {
			return p, err
		}
		a, err := AttemptOf(x, at)
		if err != nil {
			return p, err
		}
		m.Attempt = a.Number
		p.Messages = append(p.Messages, m)
	}
	return p, nil
}

// leaveDeferred leaves out deferred messages, and numbers the attempts at others.
func leaveDeferred(x *engine.Rx, p *relay.StreamPage) (err error) {
	p.Messages = slices.DeleteFunc(p.Messages, func(m *relay.Message) bool {
		if err != nil || !m.State.Pending() {
			return false
		}
		var a Attempt
		if a, err = AttemptOf(x, m.Position); a.Number > 1 {
			m.Attempt = a.Number
		}
		return a.Key == 0 && !a.Until.IsZero()
	})
	return err
}
