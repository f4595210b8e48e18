package client_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"relay/http/client"
)

// mustServeSilence takes connections, and answers nothing, as a relay does that is stopped.
func mustServeSilence(t testing.TB) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections until it is closed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

// A relay that takes a request and does not answer costs not much more than the caller's time.
func TestARelayThatIsSilentCostsTheCallersTime(t *testing.T) {
	t.Parallel()
	alice, _ := mustServe(t).mustPair()
	silent, o := alice.at(mustServeSilence(t)), client.SendOptions{Timeout: 50 * time.Millisecond}
	for name, call := range map[string]func(context.Context) error{
		"Send": func(ctx context.Context) error { _, err := silent.Send(ctx, "bob^test", struct{}{}, o); return err },
		"Ask":  func(ctx context.Context) error { _, err := silent.Ask(ctx, "bob^test", struct{}{}, o); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			err := call(ctx)
			var unsent *client.SendError
			if ctx.Err() != nil || !errors.As(err, &unsent) || !unsent.Unknown {
				t.Errorf("%v, %v", err, ctx.Err())
			}
		})
	}
}

// untilSaid asks again, with the same Idempotency-Key, until the relay has said in time why there is no
// answer. It has 2 s for that (AttemptSlack), and for the answer to the send; a busy machine may need more.
func untilSaid(ask func() error) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		err = ask()
		var none *client.NoAnswer
		var unsent *client.SendError
		late := errors.As(err, &none) && none.Verdict.Text == "" || errors.As(err, &unsent) && errors.Is(err, context.DeadlineExceeded)
		if !late {
			return err
		}
	}
	return err
}

// A deadline of the context counts as Timeout does: it is not the relay's fault.
func TestAskHasADeadline(t *testing.T) {
	t.Parallel()
	alice, bob := mustServe(t).mustPair()
	var ctx context.Context
	err := untilSaid(func() error {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(t.Context(), 1500*time.Millisecond)
		t.Cleanup(cancel)
		_, err := alice.Ask(ctx, "bob^test", struct{}{}, client.SendOptions{IdempotencyKey: "k"})
		return err
	})
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
}
