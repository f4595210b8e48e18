package db

import (
	"slices"

	"relay/db/inspect"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Latest gives the position of the last event; 0 if there is none. Events goes on from
// there.
func (i *Inspector) Latest() (p relay.Position, err error) {
	err = i.view(func(x *rx) error {
		for _, q := range []string{"SELECT max(position) FROM message", "SELECT max(position) FROM receipt"} {
			if _, err := x.c.Row(func(r *sqlite.Rows) { p = max(p, relay.Position(r.Int(0))) }, q); err != nil {
				return err
			}
		}
		return nil
	})
	return p, err
}

// Events reads up to limit events after a position, in commit order. If it gives fewer
// than limit, there are no more.
func (i *Inspector) Events(after relay.Position, limit int) (list []inspect.Event, err error) {
	err = i.view(func(x *rx) error {
		list, err = x.events(after, limit)
		return err
	})
	return list, err
}

func (x *rx) events(after relay.Position, limit int) ([]inspect.Event, error) {
	var list []inspect.Event
	r := x.c.Query("SELECT "+messageColumns+" FROM "+messageTables+" WHERE m.position > ? ORDER BY m.position LIMIT ?", int64(after), int64(limit))
	for r.Next() {
		m, err := x.readMessage(r)
		if err != nil {
			r.Close()
			return nil, err
		}
		list = append(list, inspect.Event{Position: m.Position, Message: m, Step: inspect.Step{At: m.CreatedAt, What: inspect.StepAccepted}})
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	receipts, err := x.receiptEvents(after, limit)
	if err != nil {
		return nil, err
	}
	list = append(list, receipts...)
	slices.SortFunc(list, func(a, b inspect.Event) int { return int(min(max(a.Position-b.Position, -1), 1)) })
	return list[:min(len(list), limit)], nil
}

// receiptEvents reads the events that are receipts.
func (x *rx) receiptEvents(after relay.Position, limit int) (list []inspect.Event, err error) {
	r := x.c.Query("SELECT position, message FROM receipt WHERE position > ? ORDER BY position LIMIT ?", int64(after), int64(limit))
	var of []relay.Position
	for r.Next() {
		list, of = append(list, inspect.Event{Position: relay.Position(r.Int(0))}), append(of, relay.Position(r.Int(1)))
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	if err := x.fillEvents(list, of); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(e inspect.Event) bool { return e.Message == nil }), nil
}

// fillEvents reads the steps of events that are receipts, and the messages that they are of; nil
// for a message that was removed.
func (x *rx) fillEvents(list []inspect.Event, of []relay.Position) (err error) {
	for n := range list {
		e := &list[n]
		if e.Step, _, err = x.step(int64(e.Position)); err != nil {
			return err
		}
		if e.Message, err = x.message(of[n]); err != nil {
			return err
		}
	}
	return nil
}
