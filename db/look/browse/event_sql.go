package browse

import (
	"cmp"
	"slices"

	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/internal/sqlite"
	"relay/db/look"
	"relay/db/relay"
)

// Latest returns the position of the last event, or 0 if there are no events. Events
// continues from there.
func (i Inspector) Latest() (relay.Position, error) {
	return look.See(i, func(x *engine.Rx) (relay.Position, error) {
		p, err := x.C.Number("SELECT max(coalesce((SELECT max(position) FROM message), 0), coalesce((SELECT max(position) " +
			"FROM receipt), 0))")
		return relay.Position(p), err
	})
}

// Events reads up to limit events after a position, in commit order. If it returns fewer
// than limit, there are no more.
func (i Inspector) Events(after relay.Position, limit int) ([]Event, error) {
	return look.See(i, func(x *engine.Rx) ([]Event, error) { return Events(x, after, limit) })
}

// Events reads up to limit events after a position in one transaction.
func Events(x *engine.Rx, after relay.Position, limit int) ([]Event, error) {
	some, _, err := messages.Read(x, limit,
		messages.AllAt("SELECT position FROM message WHERE position > ? ORDER BY position LIMIT ?"),
		[]any{int64(after), int64(limit)})
	if err != nil {
		return nil, err
	}
	list, err := ReceiptEvents(x,
		x.C.Query("SELECT position, message FROM receipt WHERE position > ? ORDER BY position LIMIT ?",
			int64(after), int64(limit)))
	if err != nil {
		return nil, err
	}
	for _, m := range some {
		accepted := look.Step{At: m.CreatedAt, What: look.StepAccepted}
		list = append(list, Event{Position: m.Position, Message: m, Step: accepted})
	}
	slices.SortFunc(list, func(a, b Event) int { return cmp.Compare(a.Position, b.Position) })
	return list[:min(len(list), limit)], nil
}

// ReceiptEvents makes events of rows of receipt: each row has its position and its message's. It
// leaves out receipts of removed messages.
func ReceiptEvents(x *engine.Rx, r *sqlite.Rows) (list []Event, err error) {
	var of []relay.Position
	for r.Next() {
		list, of = append(list, Event{Position: relay.Position(r.Int(0))}), append(of, relay.Position(r.Int(1)))
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	for n := range list {
		e := &list[n]
		if e.Step, _, err = look.ReadStep(x, int64(e.Position)); err != nil {
			return nil, err
		}
		if e.Message, err = messages.At(x, of[n]); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(list, func(e Event) bool { return e.Message == nil }), nil
}
