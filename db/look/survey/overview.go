// Package survey has the values that only the console reads of a store's file: what waits for
// whom, what happened in the last hour, lists of Mechas, profiles and keys. db.Console reads
// them. It goes with the console.
package survey

import (
	"time"

	"relay/db/look/browse"
	"relay/db/relay"
)

// MaxCounted is up to how many pending messages an Overview counts for a Mecha.
const MaxCounted = 1000

// Overview is what waits for whom, at one time.
type Overview struct {
	At      time.Time
	Mechas  int   // that are registered
	Boxes   []Box // of the Mechas for which messages wait
	Pending int   // messages, in all boxes
	More    bool  // a box has More: Pending is the least that there can be
	// Serving reports whether a server has the file open, and DiskFree how many bytes are left on
	// its disk to an ordinary user; -1: the file system does not tell.
	Serving  browse.Serving
	DiskFree int64
}

// A Box is what waits for a Mecha, and what the file knows of the Mecha's health. Whether the
// Mecha is online the file does not know.
type Box struct {
	Mecha    relay.Address
	Number   relay.MechaNumber
	Removed  bool // from the directory
	LiveKeys int  // neither revoked nor expired
	// LastSeen is its last request that was noted, or its newest message, unless an operator sent
	// that from a console. It may have made later requests for about a minute. Zero: none is known.
	LastSeen time.Time
	Pending  int  // pending messages, up to MostCounted
	More     bool // it has more; then the counts below are the least that there can be
	Late     int  // of them, those that are older than the time that the caller gave
	Held     int  // of them, those that a worker holds by a lease
	Deferred int  // of them, those that the Mecha has deferred
	Overdue  int  // of the oldest of them, those whose AckBy has come
	Oldest   relay.MessageID
	OldestAt time.Time // when Oldest was accepted
}

// Activity is what happened between two positions, in spans of time.
type Activity struct {
	Spans []Span         // in order of time; without those in which nothing happened
	Upto  relay.Position // all events up to here are counted
	More  bool           // there are later ones
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
	Acked   int           // final acknowledgements, failed and rejected ones among them
	Failed  int           // acknowledgements as failed or rejected
	Expired int           // messages that expired
	Events  int           // all of them, and the other receipts
	Lag     time.Duration // from a message to its final acknowledgement, added up over Acked
	MaxLag  time.Duration // the longest of them
}

// Add adds the counts of another span.
func (s *Span) Add(o Span) {
	s.Sent, s.Acked, s.Failed = s.Sent+o.Sent, s.Acked+o.Acked, s.Failed+o.Failed
	s.Expired, s.Events = s.Expired+o.Expired, s.Events+o.Events
	s.Lag, s.MaxLag = s.Lag+o.Lag, max(s.MaxLag, o.MaxLag)
}

// FileState is what a look at the file tells of it.
type FileState struct {
	Path          string
	SchemaVersion int
	File          int64          // bytes of the database
	Free          int64          // bytes of its unused pages
	Log           int64          // bytes of its write-ahead log
	DiskFree      int64          // bytes that are left to an ordinary user; -1: the file system does not tell
	Unindexed     int            // messages that the mailbox tables lack, up to MostCounted
	First, Last   time.Time      // of the oldest and the newest message, or zero
	LastEvent     relay.Position // 0 if there is no newer event
	LastAct       time.Time      // of the audit log, or zero
}
