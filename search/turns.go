package search

import (
	"time"

	"relay/db/relay"
	"relay/db/turn"
)

// maxWaiting is how many searches of one caller may wait. It bounds memory; turns
// are fair without it.
const maxWaiting = 64

var (
	// ErrBusy is returned by a search that did not run because too many searches of
	// other callers were running.
	ErrBusy = &relay.Error{Code: relay.Overloaded, Detail: "too many searches at once", RetryAfter: time.Second}
	// ErrCallerBusy is returned by a search that did not run because of other searches
	// of its caller.
	ErrCallerBusy = &relay.Error{Code: relay.RateLimited, Detail: "too many searches of this Mecha at once",
		RetryAfter: time.Second}
)

// newTurns returns the turnstile of the searches. One caller has at most half of the places,
// so that its heavy searches do not delay light searches of others.
func newTurns(o Options) *turn.Stile[relay.Address] {
	return turn.NewStile[relay.Address](turn.Options{Places: o.Concurrency, Share: (o.Concurrency + 1) / 2,
		Patience: o.Wait, Refused: busy, Waits: o.Waits})
}

func busy(own int) error {
	if own > 0 {
		return ErrCallerBusy
	}
	return ErrBusy
}
