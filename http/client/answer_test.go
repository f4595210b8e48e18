package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	nethttp "net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/scratch/wire"
	"relay/http/client"
)

// payloads of what waits for a Mecha, in order, as in `{"n":1} {"n":2}`.
func (m *mecha) payloads() string {
	m.r.t.Helper()
	var all []string
	for _, one := range collect(m.r.t, m.Inbox(m.r.t.Context(), 99)) {
		all = append(all, string(one.Payload))
	}
	return strings.Join(all, " ")
}

// A handler that comes to an end without an acknowledgement gets its message again. It does not repeat what it has said, and says the rest.
func TestTheSameAnswerIsSentOnceAndAnotherOneAlways(t *testing.T) {
	for name, o := range map[string]client.ListenOptions{"socket": {}, "claim": {Claim: true, Lease: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				alice, bob := mustServe(t).mustPair()
				id := alice.mustSend(bob, `{}`).MessageID
				crash := errors.New("crash")
				started := map[string]string{"status": "started"}
				l := launch(t, bob.Client, o, func(ctx context.Context, m *client.Message) error {
					return errors.Join(m.Reply(ctx, started), client.Abandon(crash))
				})
				if err := l.wait(); !errors.Is(err, crash) {
					t.Fatal(err)
				}
				if got := alice.payloads(); got != `{"status":"started"}` {
					t.Errorf("before the crash: %s", got)
				}
				tick := []byte(`{"tick":1}`)
				listen(t, bob.at(bob.r.url), o, func(ctx context.Context, m *client.Message) error {
					return errors.Join(m.Reply(ctx, map[string]int{"answer": 42}), m.Reply(ctx, started), m.Reply(ctx, tick), m.Reply(ctx, tick))
				})
				alice.awaitAck(id, "completed")
				if got := alice.payloads(); got != `{"status":"started"} {"answer":42} {"tick":1} {"tick":1}` {
					t.Errorf("after it: %s", got)
				}
			})
		})
	}
}

// An answer that was not sent, or perhaps, is not a further one when it is tried again.
func TestAnAnswerThatFailedIsTriedAgain(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		alice.mustSend(bob, `{}`)
		f := newFront(t, r)
		for _, m := range collect(t, bob.at(f.url).Inbox(t.Context(), 1)) {
			f.loseAnswers(1)
			f.cut() // a new connection follows
			if err := m.Reply(t.Context(), struct{}{}, client.SendOptions{Timeout: -1}); !errors.As(err, new(*client.Unreachable)) {
				t.Fatalf("%v", err)
			}
			if err := m.Reply(t.Context(), struct{}{}); err != nil || alice.received() != 1 {
				t.Errorf("%v, %d answers", err, alice.received())
			}
			if err := m.Reply(t.Context(), struct{}{}); err != nil || alice.received() != 2 {
				t.Errorf("%v, %d answers", err, alice.received())
			}
		}
	})
}

// A key of the handler's own that belongs to another message is an error, and no answer.
func TestAnAnswerWithAKeyThatIsTakenFails(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		if _, err := bob.Send(t.Context(), "alice^test", struct{}{}, client.SendOptions{IdempotencyKey: "k"}); err != nil {
			t.Fatal(err)
		}
		listen(t, bob.Client, client.ListenOptions{}, func(ctx context.Context, m *client.Message) error {
			return m.Reply(ctx, struct{}{}, client.SendOptions{IdempotencyKey: "k"})
		})
		if got := alice.awaitAck(alice.mustSend(bob, `{}`).MessageID, "failed"); !strings.Contains(got.Detail, "idempotency_key_reused") {
			t.Errorf("%+v", got)
		}
	})
}

// Of two processes of one Mecha, one asks and the other listens. The listener handles no answer.
func TestAnotherProcessLeavesTheAnswersToAsk(t *testing.T) {
	for name, o := range map[string]client.ListenOptions{"socket": {}, "several": {Jobs: 4}, "quick": {Quick: true}, "claim": {Claim: true}} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				alice, bob := mustServe(t).mustPair()
				listen(t, bob.Client, client.ListenOptions{Jobs: 4, MaxReplies: -1}, func(ctx context.Context, m *client.Message) error { return m.Reply(ctx, m.Payload) })
				var mu sync.Mutex
				var handled []string
				o.MaxReplies = 1 // which answers do not use up
				listen(t, alice.at(alice.r.url), o, func(_ context.Context, m *client.Message) error {
					mu.Lock()
					defer mu.Unlock()
					handled = append(handled, string(m.Payload))
					return nil
				})
				for i := range 10 {
					options := []client.SendOptions{{}, {ConversationID: "c"}, {IdempotencyKey: fmt.Sprint("k", i)}}[i%3]
					answer, err := alice.Ask(t.Context(), "bob^test", map[string]int{"n": i}, options)
					if err != nil || string(answer.Payload) != fmt.Sprintf(`{"n":%d}`, i) {
						t.Fatalf("%+v, %v", answer, err)
					}
				}
				bob.awaitAck(bob.mustSend(alice, `{"last":1}`).MessageID, "completed")
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(handled, []string{`{"last":1}`}) {
					t.Errorf("the listener has handled %v", handled)
				}
			})
		})
	}
}

// If nobody takes the answer, because the process that has asked is gone, a listener handles it
// at the fourth attempt.
func TestAnAnswerForAProcessThatIsGoneIsHandled(t *testing.T) {
	for name, o := range map[string]client.ListenOptions{"socket": {}, "claim": {Claim: true}, "poll": {}} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				r := mustServe(t)
				alice, bob := r.mustPair()
				sent, err := alice.Send(t.Context(), "bob^test", struct{}{}, client.SendOptions{Question: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range collect(t, bob.Inbox(t.Context(), 1)) {
					if err := m.Reply(t.Context(), map[string]int{"answer": 42}); err != nil {
						t.Fatal(err)
					}
				}
				at := r.url
				if name == "poll" {
					at = withoutUpgrades(t, r.url)
				}
				got := make(chan *client.Message, 9)
				listen(t, alice.at(at), o, func(_ context.Context, m *client.Message) error { got <- m; return nil })
				select {
				case m := <-got:
					if m.Attempt != 4 || m.InReplyTo != sent.MessageID {
						t.Errorf("%+v", m)
					}
					bob.awaitAck(m.ID, "completed")
				case <-time.After(patience):
					t.Error("the answer is handled by nobody")
				}
			})
		})
	}
}

// An answer that names no question and has a correlation id of its own answers a question which has none.
func TestAskTakesAnyCorrelationIfItHasGivenNone(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		listen(t, bob.Client, client.ListenOptions{}, func(ctx context.Context, m *client.Message) error {
			_, err := bob.Send(ctx, m.Sender, m.Payload, client.SendOptions{ConversationID: m.ConversationID, CorrelationID: "bob's own"})
			return err
		})
		var handled atomic.Int32
		listen(t, alice.Client, client.ListenOptions{Jobs: 4}, func(context.Context, *client.Message) error { handled.Add(1); return nil })
		for i := range 10 {
			answer, err := alice.Ask(t.Context(), "bob^test", map[string]int{"n": i})
			if err != nil || string(answer.Payload) != fmt.Sprintf(`{"n":%d}`, i) {
				t.Fatalf("%+v, %v", answer, err)
			}
		}
		bob.awaitAck(bob.mustSend(alice, `{"last":1}`).MessageID, "completed")
		if got := handled.Load(); got != 1 {
			t.Errorf("the listener was shown %d messages", got)
		}
	})
}

func newProxy(t testing.TB, to string) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	p := httputil.NewSingleHostReverseProxy(target)
	p.ErrorLog = log.New(io.Discard, "", 0)
	transport := nethttp.DefaultTransport.(*nethttp.Transport).Clone()
	p.Transport = transport
	t.Cleanup(transport.CloseIdleConnections)
	return p
}

// withoutUpgrades is a proxy that lets no WebSocket through.
func withoutUpgrades(t testing.TB, to string) (at string) {
	t.Helper()
	proxy := newProxy(t, to)
	return mustServeOther(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.Header.Get("Upgrade") != "" {
			nethttp.Error(w, "no upgrades", nethttp.StatusNotImplemented)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// While it is open whether a message is the answer, because the relay has not confirmed the
// question, a listener with one job handles other messages.
func TestAnUndecidedAnswerHoldsNothingUp(t *testing.T) {
	for name, o := range map[string]client.ListenOptions{"socket": {}, "quick": {Quick: true}, "claim": {Claim: true}} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				r := mustServe(t)
				alice, bob := r.mustPair()
				confirm, proxy := make(chan struct{}), newProxy(t, r.url)
				proxy.ModifyResponse = func(resp *nethttp.Response) error {
					if resp.Request.Method == "POST" && resp.Request.URL.Path == "/api/v1/messages" {
						<-confirm
					}
					return nil
				}
				c := alice.at(mustServeOther(t, proxy.ServeHTTP))
				answered, handled := make(chan struct{}, 9), make(chan string, 99)
				listen(t, bob.Client, client.ListenOptions{}, func(ctx context.Context, m *client.Message) error {
					err := errors.Join(m.Reply(ctx, map[string]int{"answer": 1}), m.Reply(ctx, map[string]int{"answer": 2}))
					answered <- struct{}{}
					return err
				})
				listen(t, c, o, func(_ context.Context, m *client.Message) error { handled <- string(m.Payload); return nil })
				asked := make(chan string, 1)
				go func() {
					answer, err := c.Ask(t.Context(), "bob^test", struct{}{})
					if err != nil {
						t.Error(err)
						asked <- ""
						return
					}
					asked <- string(answer.Payload)
				}()
				want := func(from <-chan string, text string) {
					t.Helper()
					select {
					case got := <-from:
						if got != text {
							t.Errorf("%s, want %s", got, text)
						}
					case <-time.After(patience):
						t.Fatalf("no %s", text)
					}
				}
				<-answered
				for range 3 {
					bob.awaitAck(bob.mustSend(alice, `{"other":1}`).MessageID, "completed")
					want(handled, `{"other":1}`)
				}
				close(confirm)
				want(asked, `{"answer":1}`)
				want(handled, `{"answer":2}`)
			})
		})
	}
}

// Somebody may ask himself, next to a listener.
func TestAskOneself(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice := mustServe(t).mustIssue("alice^test")
		for _, c := range []*client.Client{alice.Client, alice.at(alice.r.url)} {
			l := listen(t, c, client.ListenOptions{}, func(ctx context.Context, m *client.Message) error { return m.Reply(ctx, m.Payload) })
			answer, err := alice.Ask(t.Context(), "alice^test", map[string]int{"n": 1})
			if err != nil || string(answer.Payload) != `{"n":1}` || answer.Type != "reply" {
				t.Errorf("%+v, %v", answer, err)
			}
			l.stop()
			l.wait()
		}
	})
}

// textless is an error whose methods cannot be called.
type textless struct{ err error }

func (e *textless) Error() string { return e.err.Error() }
func (e *textless) Unwrap() error { return e.err }

func TestAnErrorWithoutATextEndsNoListener(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		for name, o := range map[string]client.ListenOptions{"plain": {}, "quick": {Quick: true}, "explained": {Explain: func(err error) string { return err.Error() }}} {
			l := listen(t, bob.Client, o, func(_ context.Context, m *client.Message) error {
				if strings.Contains(string(m.Payload), "bad") {
					var none *textless
					return none
				}
				return errors.New("\xff\x00")
			})
			if got := alice.awaitAck(alice.mustSend(bob, `{"bad":1}`).MessageID, "failed"); got.Detail != "an error of the type *client_test.textless, whose text cannot be read" {
				t.Errorf("%s: %q", name, got.Detail)
			}
			if got := alice.awaitAck(alice.mustSend(bob, `{}`).MessageID, "failed"); got.Detail != "\uFFFD\\u0000" {
				t.Errorf("%s: %q", name, got.Detail)
			}
			l.stop()
			if err := l.wait(); err != nil {
				t.Error(err)
			}
		}
	})
}
