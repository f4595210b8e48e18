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
			ctx, cancel := context.WithTimeout(t.Context(), patience) // less than an attempt has that nothing cuts off
			defer cancel()
			err := call(ctx)
			var unsent *client.SendError
			if ctx.Err() != nil || !errors.As(err, &unsent) || !unsent.Unknown {
				t.Errorf("%v, %v", err, ctx.Err())
			}
		})
	}
}
