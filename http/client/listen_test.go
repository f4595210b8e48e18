package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch/wire"
	"relay/http/client"
)

// listening is a listener that runs next to its test.
type listening struct {
	t     testing.TB
	stop  context.CancelFunc
	ended chan error

	mu     sync.Mutex
	events []client.Event
	more   chan struct{} // closed at the next event
}

// listen starts a listener, and returns when it is connected.
func listen(t testing.TB, c *client.Client, o client.ListenOptions, handle func(context.Context, *client.Message) error) *listening {
	t.Helper()
	l := launch(t, c, o, handle)
	l.await(client.Connected)
	return l
}

func launch(t testing.TB, c *client.Client, o client.ListenOptions, handle func(context.Context, *client.Message) error) *listening {
	ctx, stop := context.WithCancel(t.Context())
	l := &listening{t: t, stop: stop, ended: make(chan error, 1), more: make(chan struct{})}
	o.Report = func(e client.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, e)
		close(l.more)
		l.more = make(chan struct{})
	}
	go func() { l.ended <- c.Listen(ctx, o, handle) }()
	t.Cleanup(func() {
		stop()
		if err := l.wait(); err != nil && !errors.As(err, new(*client.Refusal)) {
			t.Log(err)
		}
	})
	return l
}

// await waits for the first event of a kind.
func (l *listening) await(what client.EventKind) client.Event {
	l.t.Helper()
	late := time.After(patience)
	for {
		l.mu.Lock()
		more := l.more
		for _, e := range l.events {
			if e.What == what {
				l.mu.Unlock()
				return e
			}
		}
		l.mu.Unlock()
		select {
		case <-more:
		case <-late:
			l.t.Fatalf("no event %d among %v", what, l.events)
		}
	}
}

// wait waits until the listener has ended, and says how. Further calls say the same.
func (l *listening) wait() error {
	l.t.Helper()
	select {
	case err := <-l.ended:
		l.ended <- err
		return err
	case <-time.After(patience):
		l.t.Fatal("the listener does not end")
		return nil
	}
}

func collect(t testing.TB, all iter.Seq2[*client.Message, error]) (messages []*client.Message) {
	t.Helper()
	for m, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	return messages
}

// awaitAck waits until the message has a word of its recipient.
func (m *mecha) awaitAck(id, status string) *client.Message {
	m.r.t.Helper()
	pause := 5 * time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		pause += pause / 4
		record, err := m.Record(m.r.t.Context(), id)
		if err != nil {
			m.r.t.Fatal(err)
		}
		if record.Status == status {
			return record
		}
		if time.Now().After(end) {
			m.r.t.Fatalf("%s is %q, want %q: %s", id, record.Status, status, record.Detail)
		}
	}
}

func TestTheHandlerDecidesWhatBecomesOfAMessage(t *testing.T) {
	for name, o := range map[string]client.ListenOptions{"socket": {}, "claim": {Claim: true, Worker: "w"}} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				alice, bob := mustServe(t).mustPair()
				listen(t, bob.Client, o, func(ctx context.Context, m *client.Message) error {
					var p struct{ Do string }
					if err := m.Decode(&p); err != nil {
						return err
					}
					switch {
					case p.Do == "fail":
						return errors.New("\x1b[1mnot\n" + strings.Repeat("é", 1000))
					case p.Do == "reject":
						return m.Ack(ctx, "rejected", "never")
					case p.Do == "defer" && m.Attempt == 1:
						if err := m.Ack(ctx, "processing", "soon"); err != nil {
							return err
						}
						return m.Defer(ctx, time.Millisecond)
					case p.Do == "past" && m.Attempt == 1:
						return m.Defer(ctx, 0)
					case p.Do == "past" && m.Attempt == 2:
						return m.Defer(ctx, -time.Minute)
					case p.Do == "past":
						return m.Ack(ctx, "completed", "the third time")
					case p.Do == "reply":
						return errors.Join(m.Reply(ctx, map[string]int{"n": 1}), m.Reply(ctx, map[string]int{"n": 2}, client.SendOptions{Type: "more"}))
					}
					return nil
				})
				ends := map[string]string{"nothing": "completed", "fail": "failed", "reject": "rejected", "defer": "completed", "past": "completed", "reply": "completed"}
				ids := map[string]string{}
				for do := range ends { // send all first: then the handler's two deferrals run at the same time
					sent, err := alice.Send(t.Context(), "bob^test", map[string]string{"do": do}, client.SendOptions{CorrelationID: "c"})
					if err != nil {
						t.Fatal(err)
					}
					ids[do] = sent.MessageID
				}
				for do, want := range ends {
					got := alice.awaitAck(ids[do], want)
					if len(got.Detail) > 1024 || strings.ContainsAny(got.Detail, "\x1b\n") || do == "fail" && !strings.HasSuffix(got.Detail, "é…") ||
						do == "reject" && got.Detail != "never" || do == "past" && got.Detail != "the third time" {
						t.Errorf("%s: %q", do, got.Detail)
					}
				}
				answers := collect(t, alice.Inbox(t.Context(), 9))
				if len(answers) != 2 || answers[0].Type != "reply" || answers[1].Type != "more" || answers[0].CorrelationID != "c" || answers[0].InReplyTo == "" {
					t.Errorf("%+v", answers)
				}
			})
		})
	}
}

func TestTheBreakerEndsWhatTwoAgentsWouldNot(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		var handled atomic.Int32
		l := listen(t, bob.Client, client.ListenOptions{MaxReplies: 2}, func(ctx context.Context, m *client.Message) error {
			handled.Add(1)
			if m.Type == "reply" {
				return nil
			}
			return m.Reply(ctx, struct{}{})
		})
		ask := func(kind, conversation string) string {
			t.Helper()
			sent, err := alice.Send(t.Context(), "bob^test", struct{}{}, client.SendOptions{Type: kind, ConversationID: conversation})
			if err != nil {
				t.Fatal(err)
			}
			return sent.MessageID
		}
		for range 2 {
			alice.awaitAck(ask("message", "c"), "completed")
		}
		if got := alice.awaitAck(ask("message", "c"), "failed"); got.Detail != "not answered: this conversation has had 2 answers in 10m0s" {
			t.Errorf("%q", got.Detail)
		}
		if e := l.await(client.HandlerFailed); !strings.Contains(e.String(), "failed: not answered") {
			t.Error(e)
		}
		alice.awaitAck(ask("reply", "c"), "completed")
		alice.awaitAck(ask("message", "d"), "completed")
		if n := handled.Load(); n != 4 {
			t.Errorf("%d were handled", n)
		}
	})
}

// A worker keeps a message for as long as its handler runs, whatever the lease.
func TestAWorkerKeepsWhatItWorksOn(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		begun := make(chan int, 9)
		for range 2 {
			listen(t, bob.at(bob.r.url), client.ListenOptions{Claim: true}, func(_ context.Context, m *client.Message) error {
				begun <- m.Attempt
				time.Sleep(10 * time.Minute)
				return nil
			})
		}
		id := alice.mustSend(bob, `{}`).MessageID
		time.Sleep(9 * time.Minute)
		if bob.record(id).State != "delivered" {
			t.Errorf("%+v after nine leases", bob.record(id))
		}
		time.Sleep(2 * time.Minute)
		if bob.record(id).State != "acknowledged" || len(begun) != 1 {
			t.Errorf("%+v, handled %d times", bob.record(id), len(begun))
		}
	})
}

// While a machine sleeps its timers stand still, and the relay's leases run out.
func TestAWorkerWhoseMachineSleptGivesItsMessageUp(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		var slept atomic.Int64
		clock := func() time.Time { return time.Now().Round(0).Add(time.Duration(slept.Load())) } // the clock on the wall
		begun, over := make(chan struct{}, 9), make(chan error, 9)
		o := client.WithClock(client.ListenOptions{Claim: true, Lease: time.Hour}, clock)
		l := listen(t, bob.Client, o, func(ctx context.Context, m *client.Message) error {
			begun <- struct{}{}
			<-ctx.Done()
			over <- context.Cause(ctx)
			return m.Reply(ctx, struct{}{})
		})
		id := alice.mustSend(bob, `{}`).MessageID
		<-begun
		slept.Store(int64(2 * time.Hour))
		select {
		case err := <-over:
			if !errors.Is(err, client.ErrLeaseLost) {
				t.Errorf("%v", err)
			}
		case <-time.After(patience):
			t.Fatal("it goes on")
		}
		if e := l.await(client.GivenUp); e.Message.ID != id {
			t.Errorf("%v", e)
		}
		if record, err := bob.Record(t.Context(), id); err != nil || record.State != "queued" || alice.received() != 0 {
			t.Errorf("%+v, %v", record, err)
		}
	})
}

// When the listener is to end, it lets handlers finish, and what they send and acknowledge counts.
func TestAListenerFinishesWhatItHasBegun(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		begun, end := make(chan struct{}), make(chan struct{})
		l := listen(t, bob.Client, client.ListenOptions{}, func(ctx context.Context, m *client.Message) error {
			close(begun)
			<-end
			return m.Reply(ctx, struct{}{})
		})
		id := alice.mustSend(bob, `{}`).MessageID
		next := alice.mustSend(bob, `{}`).MessageID
		<-begun
		l.stop()
		close(end)
		if err := l.wait(); err != nil {
			t.Error(err)
		}
		if bob.record(id).State != "acknowledged" || bob.record(next).State != "queued" || alice.received() != 1 {
			t.Errorf("%+v, %+v", bob.record(id), bob.record(next))
		}

		// Handling ends it at once, and so does a handler that abandons; both leave the message pending.
		mine := errors.New("mine")
		handling, abort := context.WithCancelCause(t.Context())
		l = listen(t, bob.Client, client.ListenOptions{Handling: handling}, func(ctx context.Context, m *client.Message) error {
			abort(mine)
			<-ctx.Done()
			return nil
		})
		if err := l.wait(); !errors.Is(err, mine) || bob.record(next).State != "queued" {
			t.Errorf("%v, %+v", err, bob.record(next))
		}
		for _, quick := range []bool{true, false} {
			l = launch(t, bob.Client, client.ListenOptions{Quick: quick}, func(context.Context, *client.Message) error { return fmt.Errorf("so: %w", client.Abandon(mine)) })
			if err := l.wait(); !errors.Is(err, mine) || bob.record(next).State != "queued" {
				t.Errorf("%v, %+v", err, bob.record(next))
			}
		}
		l = launch(t, bob.Client, client.ListenOptions{}, func(context.Context, *client.Message) error { return client.Abandon(nil) })
		if err := l.wait(); err == nil || err.Error() != next+" stays pending: its handler has abandoned it" {
			t.Error(err)
		}
		l = launch(t, bob.Client, client.ListenOptions{Ready: func(context.Context) error { return mine }}, nil)
		if err := l.wait(); !errors.Is(err, mine) {
			t.Error(err)
		}
	})
}

func TestAListenerEndsWhenWaitingIsOfNoUse(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		handle := func(context.Context, *client.Message) error { return nil }
		l := listen(t, bob.Client, client.ListenOptions{}, handle)
		w := listen(t, alice.Client, client.ListenOptions{Claim: true}, handle)
		for _, m := range []*mecha{alice, bob} {
			if err := r.db.Revoke(&relay.RevokeKey{At: time.Now(), ID: m.key.ID}); err != nil {
				t.Fatal(err)
			}
		}
		var closed *client.Closed
		if err := l.wait(); !errors.As(err, &closed) || closed.Code != 1008 {
			t.Errorf("%v", err)
		}
		if err := w.wait(); !errors.Is(err, client.ErrKeyRevoked) {
			t.Errorf("%v", err)
		}
		if err := launch(t, bob.Client, client.ListenOptions{}, handle).wait(); !errors.Is(err, client.ErrKeyRevoked) {
			t.Errorf("%v", err)
		}
		for _, o := range []client.ListenOptions{{Jobs: -1}, {Jobs: 2, Quick: true}, {Jobs: 2, State: "f"}, {Claim: true, State: "f"}, {Claim: true, Ack: client.NoAck},
			{Claim: true, Quick: true}, {Lease: time.Second}, {Worker: strings.Repeat("w", 65)}} {
			if err := bob.Listen(t.Context(), o, handle); !errors.As(err, new(*client.ConfigError)) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}

// A message that a handler defers or rejects stays so, without a listener too.
func TestWorkingLeavesTheLastWordToTheWork(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		for want, work := range map[string]func(context.Context, *client.Message) error{
			"deferred": func(ctx context.Context, m *client.Message) error { return m.Defer(ctx, -time.Second) },
			"rejected": func(ctx context.Context, m *client.Message) error { return m.Ack(ctx, "rejected", "") },
		} {
			id := alice.mustSend(bob, `{}`).MessageID
			m, err := bob.Message(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			err = m.Working(t.Context(), func(ctx context.Context) error { return work(ctx, m) })
			if got, err2 := alice.Record(t.Context(), id); err != nil || err2 != nil || got.Status != want {
				t.Errorf("%s: %v, %+v, %v", want, err, got, err2)
			}
		}
	})
}
