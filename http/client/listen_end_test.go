package client_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"relay/db/scratch/wire"
	"relay/http/client"
)

// A handler may take no notice of its context. The listener ends anyway, and what the handler
// does later has no effect.
func TestAListenerEndsThoughItsHandlerDoesNot(t *testing.T) {
	for name, o := range map[string]client.ListenOptions{"socket": {}, "quick": {Quick: true}, "claim": {Claim: true}, "several": {Jobs: 2}} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				alice, bob := mustServe(t).mustPair()
				mine := errors.New("mine")
				handling, abort := context.WithCancelCause(t.Context())
				o.Handling = handling
				begun, resume, late := make(chan struct{}, 1), make(chan struct{}), make(chan error, 3)
				l := listen(t, bob.Client, o, func(ctx context.Context, m *client.Message) error {
					begun <- struct{}{}
					<-resume
					late <- m.Ack(ctx, "completed", "")
					late <- m.Reply(context.Background(), struct{}{})
					late <- m.Defer(context.Background(), time.Minute)
					return nil
				})
				id := alice.mustSend(bob, `{}`).MessageID
				<-begun
				abort(mine)
				if err := l.wait(); !errors.Is(err, mine) {
					t.Error(err)
				}
				if e := l.await(client.LeftPending); e.Message.ID != id || e.String() != id+" stays pending: its handler has not returned, though its context has ended" {
					t.Error(e)
				}
				close(resume)
				for range cap(late) {
					if err := <-late; !errors.Is(err, client.ErrListenerEnded) || client.Temporary(err) {
						t.Error(err)
					}
				}
				if got := bob.record(id); got.State == "acknowledged" || alice.received() != 0 {
					t.Errorf("%+v, and %d answers", got, alice.received())
				}
			})
		})
	}
}

// A message that is kept beyond its handler can be answered as long as the listener runs.
func TestAnAnswerAfterTheHandler(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		kept := make(chan *client.Message, 1)
		l := listen(t, bob.Client, client.ListenOptions{}, func(_ context.Context, m *client.Message) error {
			kept <- m
			return nil
		})
		alice.mustSend(bob, `{}`)
		m := <-kept
		if err := m.Reply(t.Context(), map[string]int{"n": 1}); err != nil || alice.received() != 1 {
			t.Errorf("%v; alice has %d", err, alice.received())
		}
		l.stop()
		if err := l.wait(); err != nil {
			t.Error(err)
		}
		if err := m.Reply(t.Context(), map[string]int{"n": 2}); !errors.Is(err, client.ErrListenerEnded) || alice.received() != 1 {
			t.Errorf("%v; alice has %d", err, alice.received())
		}
	})
}

// A handler that ends its goroutine, as t.Fatal does, has failed, and the listener continues.
func TestAHandlerThatEndsItsGoroutineHasFailed(t *testing.T) {
	for name, o := range map[string]client.ListenOptions{"socket": {}, "quick": {Quick: true}, "claim": {Claim: true}} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				alice, bob := mustServe(t).mustPair()
				l := listen(t, bob.Client, o, func(_ context.Context, m *client.Message) error {
					if string(m.Payload) == `{"go":"exit"}` {
						runtime.Goexit()
					}
					return nil
				})
				first, next := alice.mustSend(bob, `{"go":"exit"}`), alice.mustSend(bob, `{}`)
				if got := alice.awaitAck(first.MessageID, "failed"); got.Detail != "the handler ended without a result" {
					t.Errorf("%q", got.Detail)
				}
				alice.awaitAck(next.MessageID, "completed")
				if e := l.await(client.HandlerFailed); e.Message.ID != first.MessageID {
					t.Error(e)
				}
			})
		})
	}
}
