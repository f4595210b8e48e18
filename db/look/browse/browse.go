// Package browse has the reads of people and rings, with or without a server on the file: lists of
// messages, the flow of events, why there is no answer, what waits for a Mecha, the audit log, and
// counts. Its Inspector is a look.Inspector with these reads. It writes nothing, and splits long
// reads into many short views. No room of the core may import it.
package browse

import (
	"time"

	"relay/db/look"
	"relay/db/relay"
)

// Inspector is a look.Inspector with the reads of this package.
type Inspector struct{ *look.Inspector }

// Inspect opens a file for these reads, as look.Inspect does.
func Inspect(path string) (Inspector, error) {
	in, err := look.Inspect(path)
	return Inspector{in}, err
}

// An Event is the acceptance of a message, or a later step of a message. Events have an
// order, which is the commit order.
type Event struct {
	Position relay.Position
	Message  *relay.Message // in its present state
	Step     look.Step
}

// Waiting is what waits for a Mecha, and what the file knows of the Mecha's health. The
// file does not know whether the Mecha is online.
type Waiting struct {
	Mecha    relay.Address
	Removed  bool          // from the directory
	LiveKeys int           // neither revoked nor expired
	LastSeen time.Time     // its last request, up to about a minute too early, or zero
	Pending  int           // pending messages
	Held     int           // pending messages that a worker holds by a lease
	Deferred int           // pending messages that the Mecha has deferred
	Overdue  int           // pending messages whose AckBy has come
	Oldest   []*look.Trace // the oldest pending messages, oldest first
}

// ListQuery selects messages for a list. Only Limit is required.
type ListQuery struct {
	Mecha        relay.Address // messages that this Mecha sent or received; "": of all
	Peer         relay.Address // messages that Mecha exchanged with this one
	Direction    relay.Direction
	Conversation relay.ConversationID
	State        relay.StateFilter
	Type         string
	Priority     string
	Since        time.Time       // messages created at this time or later
	Until        time.Time       // messages created before this time
	Status       string          // the status of the latest acknowledgement
	Text         string          // a text in the payload, without regard to letter case
	Before       relay.MessageID // messages earlier than this one in the commit order
	After        relay.MessageID // messages later than this one in the commit order
	Oldest       bool            // oldest first; else newest first
	Limit        int
}
