// Package survey has the reads of the console alone: pending messages by recipient, the
// events of the last hour, lists of Mechas, profiles and keys. It belongs to the ring of the
// console.
package survey

import (
	"time"

	"relay/db/look/browse"
	"relay/db/relay"
)

// MaxCounted is the maximum number of pending messages that an Overview counts for a Mecha.
const MaxCounted = 1000

// Overview summarizes pending messages by recipient.
type Overview struct {
	At      time.Time
	Mechas  int   // registered Mechas
	Boxes   []Box // of the Mechas for which messages wait
	Pending int   // messages, in all boxes
	More    bool  // a box has More, so Pending is a lower bound
	// Serving reports whether a server has the file open, and DiskFree is how many bytes are free
	// on its disk for an ordinary user, or -1.
	Serving  browse.Serving
	DiskFree int64
}

// A Box is what waits for a Mecha, and what the file knows of the Mecha's health. The file
// does not know whether the Mecha is online.
type Box struct {
	Mecha    relay.Address
	Number   relay.MechaNumber
	Removed  bool // from the directory
	LiveKeys int  // neither revoked nor expired
	// LastSeen is the time of its last noted request, or of its newest message, unless an operator
	// sent that from a console. Later requests may be missing for about a minute. Zero means that
	// none is known.
	LastSeen time.Time
	Pending  int  // pending messages, up to MaxCounted
	More     bool // it has more, so the counts below are lower bounds
	Late     int  // of them, messages older than the caller's time
	Held     int  // of them, messages that a worker holds by a lease
	Deferred int  // of them, messages that the Mecha has deferred
	Overdue  int  // of the oldest of them, messages whose AckBy has come
	Oldest   relay.MessageID
	OldestAt time.Time // when Oldest was accepted
}

// Activity counts the events between two positions, in spans of time.
type Activity struct {
	Spans []Span         // in order of time, without empty ones
	Upto  relay.Position // all events up to here are counted
	More  bool           // there are later events
}

// Total adds up the spans.
func (a *Activity) Total() (t Span) {
	for _, s := range a.Spans {
		t.Add(s)
	}
	return t
}

// A Span counts what happened in a span of time.
type Span struct {
	Begin   time.Time
	Sent    int           // messages that were accepted
	Acked   int           // final acknowledgements, including failed and rejected ones
	Failed  int           // acknowledgements as failed or rejected
	Expired int           // messages that expired
	Events  int           // all of these, and the other receipts
	Lag     time.Duration // from a message to its final acknowledgement, added up over Acked
	MaxLag  time.Duration // the longest of them
}

// Add adds the counts of another span.
func (s *Span) Add(o Span) {
	s.Sent, s.Acked, s.Failed = s.Sent+o.Sent, s.Acked+o.Acked, s.Failed+o.Failed
	s.Expired, s.Events = s.Expired+o.Expired, s.Events+o.Events
	s.Lag, s.MaxLag = s.Lag+o.Lag, max(s.MaxLag, o.MaxLag)
}

// FileState describes the file.
type FileState struct {
	Path          string
	SchemaVersion int
	File          int64          // bytes of the database
	Free          int64          // bytes of its unused pages
	Log           int64          // bytes of its write-ahead log
	DiskFree      int64          // bytes free for an ordinary user, or -1
	Unindexed     int            // messages missing from the mailbox tables, up to MaxCounted
	First, Last   time.Time      // of the oldest and the newest message, or zero
	LastEvent     relay.Position // or 0
	LastAct       time.Time      // the time of the last act in the audit log, or zero
}
