// Package look reads a store's file beside a server, or without one: messages and their traces, what
// waits for a Mecha, the directory, the audit log, the flow of events, and counts of it all.
//
// An Inspector reads in a process of its own. Nothing that it has leads to the writer, and SQLite
// refuses each write on its connections. ReadTrace and the other functions that take an engine.Rx
// or a Viewer serve the store's own reads, too. What only the console reads is in package survey.
package look

import (
	"time"

	"relay/db/relay"
)

// A Step is one event in the life of a message.
type Step struct {
	At       time.Time
	What     StepKind
	Key      relay.KeyID // the key of the request, or the key that opened the socket; "" for an expiry
	KeyLabel string      // "" if the key has none
	Status   string      // of an acknowledgement
	ClientTS string      // of an acknowledgement, as the client sent it
	Detail   string      // of an acknowledgement
	Worker   string      // of a claim; "" if the worker gave no name
	Until    time.Time   // the end of a lease or a deferral that began; else zero
}

// StepKind says what happened in a Step.
type StepKind string

// The kinds of steps. A message is pushed once for every socket to which it is written,
// and again when a client resumes at an earlier message.
const (
	StepAccepted     StepKind = "accepted"
	StepPushed       StepKind = "pushed"
	StepDelivered    StepKind = "delivered"
	StepProgress     StepKind = "progress" // an acknowledgement that leaves the message pending
	StepAcknowledged StepKind = "acknowledged"
	StepExpired      StepKind = "expired"
	StepClaimed      StepKind = "claimed"           // a worker of the recipient got a lease of it
	StepReturned     StepKind = "returned"          // a lease has run out, or a deferral is over
	StepOverdue      StepKind = "overdue"           // the sender was told that it is not acknowledged by its AckBy
	StepFull         StepKind = "conversation_full" // the sender was told that the conversation is full
)

// Trace is the life of one message.
type Trace struct {
	Message *relay.Message
	Retried bool   // the message came with an Idempotency-Key
	Steps   []Step // in order of time
	// Situation is that by which relay.Judge judges. Whether the recipient is online the file
	// does not know.
	Situation relay.Situation
}

// An Event is the acceptance of a message, or a later step of a message. Events have an
// order, which is the commit order.
type Event struct {
	Position relay.Position
	Message  *relay.Message // as it is now, not as it was then
	Step     Step
}

// Waiting is what waits for a Mecha, and what the file knows of the Mecha's health. Whether
// the Mecha is online the file does not know.
type Waiting struct {
	Mecha    relay.Address
	Removed  bool      // from the directory
	LiveKeys int       // neither revoked nor expired
	LastSeen time.Time // its last request, up to about a minute too early; zero: never
	Pending  int       // pending messages
	Held     int       // pending messages that a worker holds by a lease
	Deferred int       // pending messages that the Mecha has put off
	Overdue  int       // pending messages whose AckBy has come
	Oldest   []*Trace  // the oldest pending messages, oldest first
}

// ListQuery says which messages to list. Only Limit is required.
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
