package db

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// The tests of the learning ring set these, for the tests of everything that a store does.
var (
	// Learns makes a store learn.
	Learns = func(*Options, time.Duration) {}
	// lessonsTeach are the writes of the ring, for one Mecha, or nil.
	lessonsTeach func(at time.Time, of relay.Address) []relay.Write
	// forgetLearned forgets what was learned of a Mecha.
	forgetLearned = func(*DB, time.Time, relay.Address) error { return nil }
	// lessonsLocal is the work of the ring whose outcome other copies of the store do not have.
	lessonsLocal = func(*DB) []engine.Background { return nil }
	// exchangesOf lists the exchanges of a row that wait to be counted.
	exchangesOf = func(relay.Position, string) ([]string, error) { return nil, nil }
)

// withLearning returns options of a store that learns.
func withLearning(o Options, halfLife time.Duration) Options {
	Learns(&o, halfLife)
	return o
}
