// Package look reads a store's file, whether or not a server runs on it: the directory, the keys,
// what a prune would remove, and the trace of a message.
//
// An Inspector reads in its own process. It has no way to the writer, and SQLite refuses each write
// on its connections. ReadTrace and the other functions that take an engine.Rx or a Viewer serve
// the store's own reads, too. Reads for rings alone are in package browse, and reads for the
// console alone in package survey.
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
	StepOverdue      StepKind = "overdue"           // the sender was notified that it is not acknowledged by its AckBy
	StepFull         StepKind = "conversation_full" // the sender was notified that the conversation is full
)

// Trace is the life of one message.
type Trace struct {
	Message *relay.Message
	Retried bool   // the message came with an Idempotency-Key
	Steps   []Step // in order of time
	// Situation is the input of relay.Decide. The file does not know whether the
	// recipient is online.
	Situation relay.Situation
}
