package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch/wire"
	"relay/http/client"
)

func TestSendIsSentOnceThoughAnswersGetLost(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		f := newFront(t, r)
		f.loseAnswers(3)
		payload := `{ "b": 1.50,  "a": "<für Bob>" }`
		sent, err := alice.at(f.url).Send(t.Context(), "bob^test", []byte(payload), client.SendOptions{Type: "note", Priority: "high", ConversationID: "trip-17",
			CorrelationID: "c", TTL: time.Hour, AckBy: 1500 * time.Millisecond, MaxMessages: 7})
		if err != nil || !sent.Replayed || sent.ConversationID != "trip-17" || bob.received() != 1 {
			t.Fatalf("%+v, %v; bob has %d", sent, err, bob.received())
		}
		m, err := bob.Message(t.Context(), sent.MessageID)
		if err != nil || string(m.Payload) != payload || m.Type != "note" || m.Priority != "high" || m.CorrelationID != "c" || !m.Signed ||
			m.Sender != "alice^test" || m.To != "bob^test" || m.State != "queued" || m.Attempt != 1 || time.Since(m.SentAt) > time.Minute {
			t.Errorf("%+v, %v", m, err)
		}
		if m, err := alice.Message(t.Context(), sent.MessageID); err != nil || m.Payload != nil {
			t.Errorf("the sender reads %+v, %v", m, err)
		}
	})
}

// Send says whether the message may have been sent anyway, and how to find out.
func TestSendSaysWhatItKnows(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		f := newFront(t, r)
		f.loseAnswers(1)
		once := client.SendOptions{Timeout: -1}
		_, err := alice.at(f.url).Send(t.Context(), "bob^test", struct{}{}, once)
		var unsent *client.SendError
		if !errors.As(err, &unsent) || !unsent.Unknown || unsent.IdempotencyKey == "" || !errors.As(err, new(*client.Unreachable)) {
			t.Fatalf("%v", err)
		}
		once.IdempotencyKey = unsent.IdempotencyKey
		if sent, err := alice.Send(t.Context(), "bob^test", struct{}{}, once); err != nil || !sent.Replayed || bob.received() != 1 {
			t.Errorf("%+v, %v", sent, err)
		}
		_, err = alice.at("http://127.0.0.1:1").Send(t.Context(), "bob^test", struct{}{}, client.SendOptions{Timeout: -1})
		if !errors.As(err, &unsent) || unsent.Unknown || !errors.As(err, new(*client.Unreachable)) {
			t.Errorf("%v", err)
		}
		_, err = alice.Send(t.Context(), "bbo^test", struct{}{})
		var refused *client.Refusal
		if !errors.Is(err, client.ErrRecipientNotFound) || errors.Is(err, client.ErrMailboxFull) || !errors.As(err, &refused) ||
			!slices.Equal(refused.DidYouMean, []relay.Address{"bob^test"}) || errors.As(err, new(*client.Unreachable)) {
			t.Errorf("%v", err)
		}
		if _, err = alice.Send(t.Context(), "bob^test", func() {}); err == nil || errors.As(err, &unsent) && unsent.Unknown {
			t.Errorf("%v", err)
		}
		// A call that its caller cancels ends at once.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = alice.Send(ctx, "bob^test", struct{}{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func TestAskGetsTheAnswer(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		f := newFront(t, r)
		listen(t, bob.at(f.url), client.ListenOptions{}, func(ctx context.Context, m *client.Message) error {
			if strings.Contains(string(m.Payload), "no") {
				return errors.New("no seats\nleft")
			}
			return m.Reply(ctx, map[string]any{"to": m.Payload})
		})
		for range 5 {
			f.loseAnswers(1)
			answer, err := alice.at(f.url).Ask(t.Context(), "bob^test", map[string]int{"n": 1})
			if err != nil || string(answer.Payload) != `{"to":{"n":1}}` || answer.Type != "reply" || answer.Sender != "bob^test" {
				t.Fatalf("%+v, %v", answer, err)
			}
			if got, err := alice.Record(t.Context(), answer.ID); err != nil || got.Status != "completed" {
				t.Errorf("the answer is %+v, %v", got, err)
			}
		}
		if alice.received() != 5 || bob.received() != 5 {
			t.Errorf("%d questions, %d answers", bob.received(), alice.received())
		}
		// In a conversation that exists, each question gets its own answer.
		first, err := alice.Ask(t.Context(), "bob^test", struct{}{}, client.SendOptions{ConversationID: "c"})
		again, err2 := alice.Ask(t.Context(), "bob^test", struct{}{}, client.SendOptions{InReplyTo: first.ID})
		if err != nil || err2 != nil || first.ID == again.ID || again.ConversationID != "c" {
			t.Errorf("%+v, %v; %+v, %v", first, err, again, err2)
		}
		_, err = alice.Ask(t.Context(), "bob^test", map[string]bool{"no": true})
		var failed *client.Failed
		if !errors.As(err, &failed) || failed.Status != "failed" || failed.Detail != `no seats\nleft` && !strings.HasPrefix(failed.Detail, "no seats") {
			t.Errorf("%+v", err)
		}
		if _, err := alice.Ask(t.Context(), "*^test", struct{}{}); err == nil {
			t.Error("a crew was asked")
		}
	})
}

func TestNoAnswerSaysWhy(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, _ := mustServe(t).mustPair()
		_, err := alice.Ask(t.Context(), "bob^test", struct{}{}, client.SendOptions{Timeout: time.Second, IdempotencyKey: "k"})
		var none *client.NoAnswer
		if !errors.As(err, &none) || none.Verdict.Code != relay.VerdictNeverConnected || none.IdempotencyKey != "k" || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "within 1s. bob^test has never made a request.") {
			t.Fatalf("%v", err)
		}
		if m, err := alice.Record(t.Context(), none.MessageID); err != nil || m.State != "queued" {
			t.Errorf("%+v, %v", m, err)
		}
		_, err = alice.at("http://127.0.0.1:1").Ask(t.Context(), "bob^test", struct{}{}, client.SendOptions{Timeout: time.Second})
		var unsent *client.SendError
		if !errors.As(err, &unsent) || unsent.Unknown {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		mine := errors.New("mine")
		cancel(mine)
		if _, err := alice.Ask(ctx, "bob^test", struct{}{}); !errors.Is(err, mine) {
			t.Errorf("%v", err)
		}
	})
}

func TestTheMailboxAndWhatItTells(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		var sent *client.Sent
		for i := range 3 {
			var err error
			if sent, err = alice.Send(t.Context(), "bob^test", map[string]int{"n": i}, client.SendOptions{ConversationID: "c"}); err != nil {
				t.Fatal(err)
			}
		}
		if p, err := bob.Pending(t.Context()); err != nil || p.Pending != 3 || p.ByPriority["normal"] != 3 {
			t.Errorf("%+v, %v", p, err)
		}
		for i, m := range collect(t, bob.Inbox(t.Context(), 2)) {
			if string(m.Payload) != `{"n":`+string(rune('0'+i))+`}` {
				t.Errorf("%d: %+v", i, m)
			}
			err := m.Working(t.Context(), func(ctx context.Context) error {
				if i == 1 {
					return errors.New("not this one")
				}
				return m.Reply(ctx, struct{}{})
			})
			record, err2 := bob.Record(t.Context(), m.ID)
			if want := []string{"completed", "failed"}[i]; err2 != nil || record.Status != want || (err == nil) != (i == 0) {
				t.Errorf("%d: %v, %+v, %v", i, err, record, err2)
			}
		}
		if n := len(collect(t, bob.Inbox(t.Context(), 9))); n != 1 {
			t.Errorf("%d are left", n)
		}
		if n := len(collect(t, bob.History(t.Context(), "c", 9))); n != 4 {
			t.Errorf("the conversation has %d messages", n)
		}
		for range bob.History(t.Context(), "c", 9) {
			break // may stop early
		}
		for _, err := range bob.History(t.Context(), "conv_x", 9) {
			if err == nil {
				t.Error("a conversation that does not exist")
			}
		}
		if tr, err := alice.Trace(t.Context(), sent.MessageID); err != nil || tr.Verdict.Text == "" || tr.Steps[0].What != "accepted" {
			t.Errorf("%+v, %v", tr, err)
		}
		if who, err := bob.WhoAmI(t.Context()); err != nil || who.MechaID != "bob^test" || !who.SignatureRequired {
			t.Errorf("%+v, %v", who, err)
		}
		if err := bob.Publish(t.Context(), map[string]string{"description": "answers"}); err != nil {
			t.Error(err)
		}
	})
}

func TestFromEnv(t *testing.T) {
	r := mustServe(t)
	alice := r.mustIssue("alice^test", func(i *relay.IssueKey) { i.WithSecret = true })
	for _, name := range []string{"URL", "KEY", "KEY_FILE", "SIGNING_SECRET", "SIGNING_SECRET_FILE", "CA_FILE"} {
		t.Setenv("RELAY_"+name, "")
	}
	var config *client.ConfigError
	if _, err := client.FromEnv(); !errors.As(err, &config) || config.Field != "Key" {
		t.Errorf("%v", err)
	}
	t.Setenv("RELAY_URL", r.url)
	t.Setenv("RELAY_KEY", alice.key.Text+"\n")
	t.Setenv("RELAY_SIGNING_SECRET", alice.key.Secret)
	c, err := client.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if own, err := c.Address(t.Context()); err != nil || own != "alice^test" {
		t.Errorf("%s, %v", own, err)
	}
	// Files come before the variables, as for the commands.
	for name, text := range map[string]string{"RELAY_KEY": alice.key.Text, "RELAY_SIGNING_SECRET": alice.key.Secret} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(name, "wrong")
		t.Setenv(name+"_FILE", file)
	}
	if c, err = client.FromEnv(); err != nil {
		t.Fatal(err)
	}
	if who, err := c.WhoAmI(t.Context()); err != nil || who.MechaID != "alice^test" {
		t.Errorf("%+v, %v", who, err)
	}
	for _, name := range []string{"RELAY_SIGNING_SECRET_FILE", "RELAY_KEY_FILE"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "none"))
		if _, err := client.FromEnv(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		t.Setenv(name, "")
	}
	t.Setenv("RELAY_KEY", alice.key.Text)
	t.Setenv("RELAY_CA_FILE", "send_test.go")
	if _, err := client.FromEnv(); !errors.Is(err, client.ErrNoCertificate) {
		t.Errorf("%v", err)
	}
}

// An agent that listens may ask, even from its handler. The answers that it waits for are not
// taken for questions, and only these: a second answer is handled.
func TestAskBesideAListener(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		carol := r.mustIssue("carol^test")
		echo := func(ctx context.Context, m *client.Message) error {
			return errors.Join(m.Reply(ctx, m.Payload), m.Reply(ctx, struct{}{}, client.SendOptions{Type: "more"}))
		}
		listen(t, carol.Client, client.ListenOptions{Jobs: 8}, echo)
		var handled, more atomic.Int32
		listen(t, bob.Client, client.ListenOptions{Jobs: 4}, func(ctx context.Context, m *client.Message) error {
			if m.Type == "more" {
				more.Add(1)
				return nil
			}
			handled.Add(1)
			answer, err := bob.Ask(ctx, "carol^test", m.Payload)
			if err != nil {
				return err
			}
			return m.Reply(ctx, answer.Payload)
		})
		const n = 40
		var asking sync.WaitGroup
		for i := range n {
			asking.Go(func() {
				answer, err := alice.Ask(t.Context(), "bob^test", map[string]int{"n": i})
				if err != nil || string(answer.Payload) != fmt.Sprintf(`{"n":%d}`, i) {
					t.Errorf("%+v, %v", answer, err)
				}
			})
		}
		asking.Wait()
		alice.mustSend(bob, `{"last":1}`) // everything before it has come
		for end := time.Now().Add(patience); len(collect(t, bob.Inbox(t.Context(), 99))) > 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d messages were handled, and more wait", handled.Load())
			}
		}
		if got := handled.Load(); got != n+1 || more.Load() != n+1 {
			t.Errorf("%d questions and %d second answers were handled", got, more.Load())
		}
	})
}

// An answer that names no question, but comes in its conversation with its correlation id, is the answer of Ask as well.
func TestAskTakesAnswersThatNameNoQuestion(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		listen(t, bob.Client, client.ListenOptions{Jobs: 8}, func(ctx context.Context, m *client.Message) error {
			_, err := bob.Send(ctx, m.Sender, m.Payload, client.SendOptions{ConversationID: m.ConversationID, CorrelationID: m.CorrelationID})
			return err
		})
		var handled atomic.Int32
		listen(t, alice.Client, client.ListenOptions{Jobs: 4}, func(context.Context, *client.Message) error {
			handled.Add(1)
			return nil
		})
		const n = 40
		var asking sync.WaitGroup
		for i := range n {
			asking.Go(func() {
				answer, err := alice.Ask(t.Context(), "bob^test", map[string]int{"n": i}, client.SendOptions{CorrelationID: fmt.Sprint("c", i%2)})
				if err != nil || string(answer.Payload) != fmt.Sprintf(`{"n":%d}`, i) {
					t.Errorf("%+v, %v", answer, err)
				}
			})
		}
		asking.Wait()
		bob.mustSend(alice, `{"last":1}`) // everything before it has come
		for end := time.Now().Add(patience); len(collect(t, alice.Inbox(t.Context(), 99))) > 0 || handled.Load() == 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d messages were handled, and more wait", handled.Load())
			}
		}
		if got := handled.Load(); got != 1 {
			t.Errorf("the listener was shown %d messages", got)
		}
	})
}

// What can never be sent is refused at once.
func TestAHeaderThatIsNoneIsRefused(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, _ := mustServe(t).mustPair()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for _, key := range []string{"a\nb", "\x00", "a\x7f"} {
			_, err := alice.Send(ctx, "bob^test", struct{}{}, client.SendOptions{IdempotencyKey: key})
			var unsent *client.SendError
			var wrong *client.ConfigError
			if ctx.Err() != nil || !errors.As(err, &unsent) || unsent.Unknown || !errors.As(err, &wrong) || wrong.Field != "Idempotency-Key" {
				t.Errorf("%q: %v", key, err)
			}
		}
		for _, o := range []client.SendOptions{{TTL: -1}, {AckBy: -time.Hour}, {MaxMessages: -1}} {
			if _, err := alice.Send(ctx, "bob^test", struct{}{}, o); !errors.As(err, new(*client.ConfigError)) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		if _, err := alice.Do(ctx, "GET", "/api/v1/whoami", nil, map[string][]string{"X Y": {"z"}}); !errors.As(err, new(*client.ConfigError)) || !client.NothingDone(err) {
			t.Error(err)
		}
	})
}
