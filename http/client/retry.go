package client

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"relay/db/relay"
)

// Temporary reports whether the same request, signed again, may succeed later. It may after faults of the network,
// while a relay is overloaded, stopping or away, and once a wrong clock is set. It may not after other refusals, as of
// a conversation that is full, after a wrong request or URL, or for a message that the handler may not acknowledge.
// The end of a context counts as a fault of the network: ask the context first.
func Temporary(err error) bool {
	var r *Refusal
	switch {
	case errors.Is(err, ErrInvalidRequest), errors.As(err, new(*ConfigError)), errors.As(err, new(*WrongScheme)),
		Refused(err, relay.ConversationFull):
		return false
	case errors.Is(err, ErrListenerEnded), errors.Is(err, ErrLeaseLost), errors.Is(err, errHandled):
		return false
	case !errors.As(err, &r):
		return true // there was no answer at all
	case Refused(err, relay.NonceReused, relay.TimestampOutOfRange, relay.RequestTimeout):
		return true // net/http sent the request twice; the clock was wrong; the network was slow
	}
	return r.Status == http.StatusTooManyRequests || r.Status >= 500
}

// NothingDone reports whether a failed request certainly had no effect, because it never left or because the
// relay says so. If not, a write may have been done anyway: repeat it with the same Idempotency-Key.
func NothingDone(err error) bool {
	var op *net.OpError
	var r *Refusal
	switch {
	case errors.Is(err, errNotSent), errors.Is(err, ErrInvalidRequest), errors.As(err, new(*ConfigError)),
		errors.As(err, new(*WrongScheme)), errors.As(err, new(*tls.CertificateVerificationError)):
		return true
	case errors.As(err, &op):
		return op.Op == "dial"
	}
	return errors.As(err, &r) && (r.Status < 500 || Refused(err, relay.Overloaded, relay.ShuttingDown, relay.DiskFull))
}

// Backoff is the pause between attempts. It begins at 250 ms and doubles up to
// Most. Half of it is random, so that the many clients of a relay that was
// restarted do not come back all at once. One goroutine at a time may use it.
type Backoff struct {
	Most time.Duration // at least 250 ms

	next time.Duration
}

const firstPause = 250 * time.Millisecond

// Pause returns how long to wait after an attempt that failed with err. That
// is longer every time, and never less than a Refusal asks for.
func (b *Backoff) Pause(err error) time.Duration {
	b.next = min(max(b.next, firstPause), b.Most)
	d := b.next/2 + rand.N(b.next/2+1)
	b.next *= 2
	var r *Refusal
	if errors.As(err, &r) {
		d = max(d, r.RetryAfter)
	}
	return d
}

// Reset makes the next pause a short one, after an attempt that succeeded.
func (b *Backoff) Reset() { b.next = 0 }

const (
	// AttemptSlack is by how much the last of several attempts may exceed the caller's time: its
	// answer is worth a little more.
	AttemptSlack = 2 * time.Second

	attemptTimeout = 30 * time.Second // for a request that the relay does not hold
)

// Attempt returns the context of one attempt of a caller who has left until it gives up. It ends
// AttemptSlack after that, and after 30 seconds at the latest; both are counted from the end of
// hold, for which the relay may hold its answer. 0 and less for left: there is one attempt only, and it
// has the 30 seconds.
func Attempt(ctx context.Context, left, hold time.Duration) (context.Context, context.CancelFunc) {
	limit := attemptTimeout
	if left > 0 {
		limit = min(left+AttemptSlack, limit)
	}
	return context.WithTimeout(ctx, hold+limit)
}

// Left is how much of the caller's time is left until end for [Attempt]: above 0 also if end has just
// passed, unless limit says that there is one attempt only.
func Left(limit time.Duration, end time.Time) time.Duration {
	if limit <= 0 {
		return 0
	}
	return max(time.Until(end), 1)
}

// Retry calls f until it succeeds, fails for good, or limit has passed; with a limit of 0 and less,
// once. It returns the error of the last attempt. The context of each attempt is from [Attempt].
func Retry(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	end := time.Now().Add(limit)
	for b := (Backoff{Most: sendPause}); ; {
		attempt, cancel := Attempt(ctx, Left(limit, end), 0)
		err := f(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !Temporary(err) {
			return err
		}
		if d := b.Pause(err); time.Now().Add(d).After(end) || !Sleep(ctx, d) {
			return err
		}
	}
}

// Sleep waits for d, as between two attempts, and returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
