package cmd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	nethttp "net/http"
	"time"

	"relay/db/relay"
)

// backoff is the pause between attempts: from 250 ms it doubles up to most, by
// half at random, so that many clients of a restarted relay do not come at once.
type backoff struct {
	most time.Duration
	next time.Duration
}

const firstPause = 250 * time.Millisecond

// pause gives how long to wait before the next attempt: longer every time, and
// as long as the relay asked for, if it did.
func (b *backoff) pause(err error) time.Duration {
	b.next = min(max(b.next, firstPause), b.most)
	d := b.next/2 + rand.N(b.next/2+1)
	b.next *= 2
	var r *refusal
	if errors.As(err, &r) {
		d = max(d, r.after)
	}
	return d
}

func (b *backoff) reset() { b.next = 0 }

// sleep waits, and returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// transient tells whether the same request may do better later: the network,
// a relay that is overloaded, stopping or away, a clock that may be set right.
func transient(err error) bool {
	var r *refusal
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return false
	case !errors.As(err, &r):
		return true // no answer at all
	case refusedWith(err, relay.NonceReused, relay.TimestampOutOfRange, relay.RequestTimeout):
		return true // a library sent it twice; the clock; the network
	}
	return r.status == nethttp.StatusTooManyRequests || r.status >= 500
}

// nothingDone tells whether a failed request certainly changed nothing: it
// never left, or the relay says so.
func nothingDone(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op == "dial"
	}
	var r *refusal
	return errors.As(err, &r) && (r.status < 500 || refusedWith(err, relay.Overloaded, relay.ShuttingDown, relay.DiskFull))
}

// advice adds to an error what the relay cannot know.
func advice(err error) error {
	if refusedWith(err, relay.TimestampOutOfRange) {
		return fmt.Errorf("%w; set this machine's clock", err)
	}
	return err
}
