package engine

import (
	"context"
	"time"

	"relay/db/relay"
)

func (w *Store) CheckFresh() error {
	if w.Opts.Gate == nil || w.Opts.Gate.Fresh() {
		return nil
	}
	return ErrNotCurrent("this node of the cluster does not hear most of the others, or is behind them; ask another one")
}

func ErrNotCurrent(detail string) error {
	e := relay.Errorf(relay.NotCurrent, "%s", detail)
	e.RetryAfter = time.Second
	return e
}

// MaxLag is how long a read waits for a message that this node does not have yet.
const MaxLag = 2 * time.Second

// AwaitMessage waits for a message that another node has accepted, and this one does not have
// yet, so that a client can read what it has written, whichever node it asks. Ids are keyed
// functions of the position: a valid one that lies ahead proves that this node is behind. The
// wait ends after MaxLag. Without a log, and for any other id, it returns at once. Errors:
// NotCurrent, and the error of ctx.
func (w *Store) AwaitMessage(ctx context.Context, id relay.MessageID) error {
	if w.Log == nil || id == "" {
		return nil
	}
	if p, ok := w.IDs.MessagePosition(id); ok {
		return w.Log.Await(ctx, p)
	}
	return nil
}

// AwaitQuery is AwaitMessage for the ids in a query.
func (w *Store) AwaitQuery(ctx context.Context, q relay.HistoryQuery) error {
	if w.Log == nil {
		return nil
	}
	after, _ := w.IDs.MessagePosition(q.After)
	before, _ := w.IDs.MessagePosition(q.Before)
	first, _ := w.IDs.ConversationPosition(q.Conversation)
	return w.Log.Await(ctx, max(after, before, first))
}

// AwaitNodes waits, after a write that decides which keys work, until each node has applied
// it or serves no reads. So a key that was revoked works nowhere once the command returns.
func (w *Store) AwaitNodes(ctx context.Context, write relay.Write) {
	if w.Opts.Gate == nil || !w.Table.DecidesKeys(write) {
		return
	}
	number := uint64(0)
	if w.Log != nil {
		number = w.Log.Place().Applied // the write was applied, so it is not later
	}
	if err := w.Opts.Gate.Seen(ctx, number); err != nil && ctx.Err() == nil {
		w.Opts.Logger.Warn("it is not known whether all nodes have applied a change of keys", "entry", number, "error", err)
	}
}
