// Package lessons has the hooks by which discovery learns from searches and acknowledgements. The rooms
// call them; a ring provides them, by Register or by an option of the store. Without a ring, the store
// learns nothing.
package lessons

import (
	"time"

	"relay/db/internal/answers"
	"relay/db/internal/dictionary"
	"relay/db/internal/directory"
	"relay/db/internal/engine"
	"relay/db/internal/progress"
	"relay/db/internal/retention"
	"relay/db/internal/sending"
	"relay/db/relay"
)

// Lessons is the room of learned words.
type Lessons interface {
	engine.Room
	answers.Lessons
	directory.Lessons
	progress.Lessons
	sending.Lessons
	retention.Lessons
	// Start reads what an earlier process has left.
	Start() error
}

// Make makes the room of a store.
type Make func(*engine.Store, *dictionary.Dictionary) Lessons

var registered Make = func(*engine.Store, *dictionary.Dictionary) Lessons { return none{} }

// Register has stores use the rooms of m, unless their options name others.
func Register(m Make) { registered = m }

// Registered returns the registered Make, or one that makes a room that learns nothing.
func Registered() Make { return registered }

// none learns nothing.
type none struct{ engine.Quiet }

func (none) Start() error                                                                 { return nil }
func (none) Asked(*relay.SaveSearch)                                                      {}
func (none) Kept(*relay.SaveSearch) (words, listed any)                                   { return nil, nil }
func (none) Sought(*relay.SendMessage) []string                                           { return nil }
func (none) Learns() bool                                                                 { return false }
func (none) MechaRemoved(*engine.Tx, relay.MechaNumber, time.Time) error                  { return nil }
func (none) ProfilePut(*engine.Tx, relay.MechaNumber, bool, time.Time) error              { return nil }
func (none) MechaGone(*engine.Tx, relay.MechaNumber) error                                { return nil }
func (none) Prune(*engine.Tx, int64, int64, relay.Position, time.Time) error              { return nil }
func (none) Ended(*engine.Tx, *relay.Acknowledge, *relay.Message, string, relay.Position) {}
