package client_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch/wire"
	"relay/http/client"
)

func TestBackoffGrowsAndBeginsAgain(t *testing.T) {
	b := client.Backoff{Most: 2 * time.Second}
	for range 2 {
		for i, most := range []time.Duration{250, 500, 1000, 2000, 2000, 2000} {
			most *= time.Millisecond
			if d := b.Pause(nil); d < most/2 || d > most {
				t.Errorf("pause %d is %v, want %v to %v", i, d, most/2, most)
			}
		}
		b.Reset()
	}
	if d := b.Pause(&client.Refusal{Status: 503, RetryAfter: time.Minute}); d != time.Minute {
		t.Errorf("%v, though the relay asks for a minute", d)
	}
	if d := b.Pause(errors.New("lost")); d > time.Second {
		t.Errorf("the pause that the relay asked for is not kept for later attempts: %v", d)
	}
}

// The answer gets lost on the way: the message was sent, the sender cannot
// know, and with an Idempotency-Key it is sent once however often it is tried.
func TestAMessageIsSentOnceThoughAnswersGetLost(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		f := newFront(t, r)
		f.loseAnswers(3)
		there := alice.at(f.url)
		body, once := []byte(`{"to":"bob^test","payload":{}}`), nethttp.Header{"Idempotency-Key": {"k"}}
		lost := 0
		for {
			resp, err := there.Do(t.Context(), "POST", "/api/v1/messages", body, once)
			if err == nil {
				if resp.Status != 201 || resp.Header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("%+v", resp)
				}
				break
			}
			if lost++; lost > 3 || !client.Temporary(err) || client.NothingDone(err) {
				t.Fatalf("attempt %d: %v", lost, err)
			}
		}
		if n := bob.received(); lost != 3 || n != 1 {
			t.Errorf("%d answers got lost, and bob has %d messages", lost, n)
		}
	})
}

func TestWhatMayBeTriedAgainAndWhatWasDone(t *testing.T) {
	for _, c := range []struct {
		err                    error
		temporary, nothingDone bool
	}{
		{&client.Refusal{Status: 400, Code: relay.InvalidJSON}, false, true},
		{&client.Refusal{Status: 401, Code: relay.UnknownKey}, false, true},
		{&client.Refusal{Status: 401, Code: relay.TimestampOutOfRange}, true, true},
		{&client.Refusal{Status: 401, Code: relay.NonceReused}, true, true},
		{&client.Refusal{Status: 408, Code: relay.RequestTimeout}, true, true},
		{&client.Refusal{Status: 429, Code: relay.MailboxFull}, true, true},
		{&client.Refusal{Status: 500, Code: relay.StoreFailed}, true, false},
		{&client.Refusal{Status: 502}, true, false},
		{&client.Refusal{Status: 503, Code: relay.Overloaded}, true, true},
		{&client.Refusal{Status: 503, Code: relay.ShuttingDown}, true, true},
		{&client.Refusal{Status: 507, Code: relay.DiskFull}, true, true},
		{&client.Closed{Code: 1001}, true, false},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, true, false},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true, true},
		{io.EOF, true, false},
		{client.ErrInvalidRequest, false, true},
		{&client.WrongScheme{Speaks: "http"}, false, true},
	} {
		err := fmt.Errorf("wrapped: %w", c.err)
		if got := client.Temporary(err); got != c.temporary {
			t.Errorf("%v: temporary %v", err, got)
		}
		if got := client.NothingDone(err); got != c.nothingDone {
			t.Errorf("%v: nothing done %v", err, got)
		}
	}
}
