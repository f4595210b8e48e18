package db

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// A message that was written at one node can be read at another at once, however far the
// other is behind: it waits for the message.
func TestReplicasReadWhatAnotherHasWritten(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	k := a.issue("bob^demo")
	b.catchUp()
	me := k.Mecha.Number
	for what, read := range map[string]func(*DB, relay.Sent) error{
		"the record": func(d *DB, s relay.Sent) error {
			_, err := d.Message(t.Context(), me, s.ID)
			return err
		},
		"the payload": func(d *DB, s relay.Sent) error {
			_, err := d.Payload(t.Context(), me, s.ID)
			return err
		},
		"the trace": func(d *DB, s relay.Sent) error {
			_, _, err := d.Trace(t.Context(), k.Mecha, s.ID)
			return err
		},
		"the page behind it": func(d *DB, s relay.Sent) error {
			_, err := d.History(t.Context(), relay.HistoryQuery{Mecha: me, After: s.ID, Limit: 1})
			return err
		},
		"the page before it": func(d *DB, s relay.Sent) error {
			p, err := d.History(t.Context(), relay.HistoryQuery{Mecha: me, Before: s.ID, Limit: 1, Descending: true})
			if err == nil && len(p.Messages) != 1 {
				err = errors.New("the message before it is not there")
			}
			return err
		},
		"its conversation": func(d *DB, s relay.Sent) error {
			p, err := d.History(t.Context(), relay.HistoryQuery{Mecha: me, Conversation: s.Conversation, MustTakePart: true, Limit: 1})
			if err == nil && len(p.Messages) != 1 {
				err = errors.New("it is not in its conversation")
			}
			return err
		},
		"a socket that begins behind it": func(d *DB, s relay.Sent) error {
			_, err := d.Cursor(s.ID)
			return err
		},
	} {
		b.log.cut.Lock()
		a.mustSend(k, 0)
		sent := a.mustSend(k, 0)
		done := make(chan error)
		go func() { done <- readPatiently(b.DB, sent, read) }()
		go b.log.cut.Unlock()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"an id of nobody": second(b.Message(t.Context(), me, "msg_00000000000000000000000000")),
		"no id":           second(b.Message(t.Context(), me, "")),
	} {
		if relay.ErrorCode(err) != relay.MessageNotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A node that stays behind says so, instead of that there is no such message.
	b.log.cut.Lock()
	sent := a.mustSend(k, 0)
	_, err := b.Message(t.Context(), me, sent.ID)
	b.want(relay.NotCurrent, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Message(ctx, me, sent.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone: %v", err)
	}
	b.log.cut.Unlock()
	wantEnd(a, b)
}

// readPatiently reads again if a busy machine has kept the message from the node for longer than it
// waits. It is an error that a node has the message and says that it does not, or does not wait.
func readPatiently(d *DB, s relay.Sent, read func(*DB, relay.Sent) error) (err error) {
	at, _ := d.w.IDs.MessagePosition(s.ID)
	for range 20 {
		last, _ := replicated(d.w).Replica.AppliedTo.Get()
		began := time.Now()
		err = read(d, s)
		if relay.ErrorCode(err) != relay.NotCurrent || at <= last || time.Since(began) < engine.MaxLag {
			return err
		}
	}
	return err
}

func second[T any](_ T, err error) error { return err }

// A node that is not fresh refuses what reads, and says that it may be asked again soon.
func TestStaleNodesRefuseReads(t *testing.T) {
	t.Parallel()
	var stale atomic.Bool
	_, a, b := pair(t, func(o *Options) { o.Gate = gate{fresh: func() bool { return !stale.Load() }} })
	a.want("", a.CheckFresh())
	if !a.MayBeStale() {
		t.Error("it says that it never is stale")
	}
	stale.Store(true)
	err := a.CheckFresh()
	a.want(relay.NotCurrent, err)
	var e *relay.Error
	if !errors.As(err, &e) || e.RetryAfter < time.Second {
		t.Errorf("%+v", e)
	}
	stale.Store(false)
	a.issue("bob^demo")
	wantEnd(a, b)
}
