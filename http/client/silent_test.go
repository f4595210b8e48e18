package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"relay/db/scratch/wire"
	"relay/http/client"
)

// mustServeSilence takes connections, and answers nothing, as a relay does that is stopped.
func mustServeSilence(t testing.TB) (url string) {
	t.Helper()
	l := wire.Listen(t) // which takes connections until it is closed
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

// A relay that takes a request and does not answer costs not much more than the caller's time.
func TestARelayThatIsSilentCostsTheCallersTime(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, _ := mustServe(t).mustPair()
		silent, o := alice.at(mustServeSilence(t)), client.SendOptions{Timeout: 5 * time.Second}
		for name, call := range map[string]func(context.Context) error{
			"Send": func(ctx context.Context) error { _, err := silent.Send(ctx, "bob^test", struct{}{}, o); return err },
			"Ask":  func(ctx context.Context) error { _, err := silent.Ask(ctx, "bob^test", struct{}{}, o); return err },
		} {
			began := time.Now()
			err := call(t.Context())
			var unsent *client.SendError
			if d := time.Since(began); !errors.As(err, &unsent) || !unsent.Unknown || d < o.Timeout || d > o.Timeout+client.AttemptSlack {
				t.Errorf("%s: after %v: %v", name, d, err)
			}
		}
	})
}

// A deadline of the context counts as Timeout does: it is not the relay's fault.
func TestAskHasADeadline(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		alice, bob := mustServe(t).mustPair()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err := alice.Ask(ctx, "bob^test", struct{}{}, client.SendOptions{IdempotencyKey: "k"})
		var none *client.NoAnswer
		if !errors.As(err, &none) || none.Verdict.Text == "" || none.IdempotencyKey != "k" || none.Within <= 0 || none.Within > 1500*time.Millisecond || bob.record(none.MessageID).State != "queued" {
			t.Errorf("%v", err)
		}
		<-ctx.Done()
		var unsent *client.SendError
		if _, err = alice.Ask(ctx, "bob^test", struct{}{}); !errors.As(err, &unsent) || unsent.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err = alice.Send(ctx, "bob^test", struct{}{}); !errors.As(err, &unsent) || unsent.Unknown {
			t.Errorf("%v", err)
		}
		if bob.received() != 1 {
			t.Errorf("bob has %d", bob.received())
		}
	})
}
