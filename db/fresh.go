package db

import (
	"context"
	"time"

	"relay/db/relay"
)

func (w *writer) checkFresh() error {
	if w.opts.Fresh == nil || w.opts.Fresh() {
		return nil
	}
	return errNotCurrent("this node of the cluster does not hear most of the others, or is behind them; ask another one")
}

func errNotCurrent(detail string) error {
	e := relay.Errorf(relay.NotCurrent, "%s", detail)
	e.RetryAfter = time.Second
	return e
}

// longestLag is for how long a read waits for a message that this node does not have yet.
const longestLag = 2 * time.Second

// awaitMessage waits for a message that another node has accepted, and this one does not have
// yet, so that a client can read what it has written, whichever node it asks. Ids are keyed
// functions of the position: a valid one that lies ahead proves that this node is behind. The
// wait ends after longestLag. Without a log, and for any other id, it returns at once. Errors:
// NotCurrent, and that of ctx.
func (w *writer) awaitMessage(ctx context.Context, id relay.MessageID) error {
	if w.log == nil || id == "" {
		return nil
	}
	if p, ok := w.IDs.MessagePosition(id); ok {
		return w.log.Await(ctx, p)
	}
	return nil
}

// awaitQuery is awaitMessage for the ids in a query.
func (w *writer) awaitQuery(ctx context.Context, q relay.HistoryQuery) error {
	if w.log == nil {
		return nil
	}
	after, _ := w.IDs.MessagePosition(q.After)
	before, _ := w.IDs.MessagePosition(q.Before)
	first, _ := w.IDs.ConversationPosition(q.Conversation)
	return w.log.Await(ctx, max(after, before, first))
}

// awaitNodes waits, after a write that decides which keys work, until each node has applied
// it or serves no reads. So a key that was revoked works nowhere once the command returns.
func (w *writer) awaitNodes(ctx context.Context, write relay.Write) {
	if w.opts.Seen == nil || !w.table.decidesKeys(write) {
		return
	}
	number := uint64(0)
	if w.log != nil {
		number = w.log.Applied() // the write was applied, so it is not later
	}
	if err := w.opts.Seen(ctx, number); err != nil && ctx.Err() == nil {
		w.opts.Logger.Warn("it is not known whether all nodes have applied a change of keys", "entry", number, "error", err)
	}
}
