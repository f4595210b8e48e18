package db

import (
	"context"
	"sync"
	"time"

	"relay/db/relay"
)

// A reach tells other goroutines up to which position a copy has applied its log.
type reach struct {
	mu    sync.Mutex
	last  relay.Position // as committed
	moved chan struct{}  // closed when last grows; nil: nobody waits
}

// move moves the reach forward, after a commit.
func (r *reach) move(to relay.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = to
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}

// look gives the position, and a channel that is closed when it grows.
func (r *reach) look() (last relay.Position, moved <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moved == nil {
		r.moved = make(chan struct{})
	}
	return r.last, r.moved
}

// MayBeStale reports whether Fresh may be false at some time: this is a node among several. Safe
// for concurrent use.
func (d *DB) MayBeStale() bool { return d.w.opts.Fresh != nil }

// Fresh reports whether reads are answered. It is false while this node of a log cannot tell
// what the others have written in the last two seconds: it might show what a revoked key may
// no longer see. Without a log it is true. Safe for concurrent use.
func (d *DB) Fresh() bool { return d.w.checkFresh() == nil }

// CheckFresh returns the refusal of a read while Fresh is false: NotCurrent. Safe for concurrent
// use.
func (d *DB) CheckFresh() error { return d.w.checkFresh() }

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
	if p, ok := w.ids.MessagePosition(id); ok {
		return w.log.Await(ctx, p)
	}
	return nil
}

// awaitQuery is awaitMessage for the ids in a query.
func (w *writer) awaitQuery(ctx context.Context, q relay.HistoryQuery) error {
	if w.log == nil {
		return nil
	}
	after, _ := w.ids.MessagePosition(q.After)
	before, _ := w.ids.MessagePosition(q.Before)
	first, _ := w.ids.ConversationPosition(q.Conversation)
	return w.log.Await(ctx, max(after, before, first))
}

// UseNonce uses up, at all nodes, the nonce of a request that lets its sender write later (see
// relay.UseNonce). Without a log it does nothing, because Claim has done so. Errors:
// NonceReused, UnknownKey, KeyRevoked, KeyExpired, and those of every write. Safe for
// concurrent use.
func (d *DB) UseNonce(k *relay.Key, nonce relay.NonceHash) error {
	if d.w.log == nil {
		return nil
	}
	_, err := do[none](d.w, &relay.UseNonce{At: d.w.opts.Now(), Key: k.Number, Nonce: nonce})
	return err
}

// useNonce writes nothing itself: the entry keeps the nonce (replica.go).
func (t *tx) useNonce(u *relay.UseNonce) (none, error) {
	_, err := t.w.directory.caller(t, u.Key)
	return none{}, err
}

// awaitNodes waits, after a write that decides which keys work, until each node has applied
// it or serves no reads. So a key that was revoked works nowhere once the command returns.
func (w *writer) awaitNodes(ctx context.Context, write relay.Write) {
	if w.opts.Seen == nil || !w.table.decidesKeys(write) {
		return
	}
	number := w.place().Applied // the write was applied, so it is not later
	if err := w.opts.Seen(ctx, number); err != nil && ctx.Err() == nil {
		w.opts.Logger.Warn("it is not known whether all nodes have applied a change of keys", "entry", number, "error", err)
	}
}
