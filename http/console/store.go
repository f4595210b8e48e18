package console

import (
	"context"
	"time"

	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
)

// Store is what the console reads; db.Console is one. Each method sees the file in short
// views, so that it does not hold up a server. It must be safe for concurrent use.
type Store interface {
	Path() string
	Changed() (bool, error)
	Latest() (relay.Position, error)
	Overview(ctx context.Context, late time.Time) (survey.Overview, error)
	Activity(after relay.Position, span time.Duration, limit int) (survey.Activity, error)
	Back(since time.Time, limit int) (relay.Position, error)
	Events(after relay.Position, limit int) ([]browse.Event, error)
	Dead(since time.Time, limit int) ([]browse.Event, error)
	Newest(limit int) ([]browse.Event, error)
	Pushes(after relay.Position, limit int) (list []browse.Event, next relay.Position, err error)
	NewestPushes(limit int) (list []browse.Event, next relay.Position, err error)
	Messages(ctx context.Context, q browse.ListQuery) (list []*relay.Message, more bool, err error)
	Message(id relay.MessageID) (*relay.Message, error)
	Payload(id relay.MessageID) ([]byte, error)
	Why(ctx context.Context, id relay.MessageID) (*look.Trace, error)
	Answers(id relay.MessageID, limit int) ([]*relay.Message, error)
	Acts(since time.Time) ([]relay.NotedAct, error)
	FileState() (survey.FileState, error)
	Mechas(q survey.MechaQuery) (list []survey.Known, more bool, err error)
	Mecha(a relay.Address, late time.Time) (survey.MechaState, error)
	MechaHour(id relay.MechaNumber, since time.Time, span time.Duration) (survey.MechaHour, error)
	Profiles(ctx context.Context, q survey.ProfileQuery) (survey.ProfilePage, error)
	Listed(ids []relay.MechaNumber) ([]survey.Listed, error)
	Keys(q survey.KeyQuery) (survey.KeyPage, error)
}

// Live is what only the server knows. It must be safe for concurrent use.
type Live interface {
	// Online reports whether the Mecha has a socket or a long-poll open.
	Online(relay.MechaNumber) bool
	// Open counts the open sockets and long-polls of the Mecha.
	Open(relay.MechaNumber) (sockets, longPolls int)
	// Full returns, for the sockets of the Mecha whose sync window is full, since when the oldest of them has
	// been open, or the zero time, and how many messages they were sent that are not acknowledged.
	Full(relay.MechaNumber) (open time.Time, sent int)
	// LastRequest returns when the Mecha made its last request, or the zero time if it has made none since the
	// server's start.
	LastRequest(relay.MechaNumber) time.Time
	Health() ServerHealth
}

// ServerHealth has the measurements of a server.
type ServerHealth struct {
	Sockets, LongPolls, Online int // Online counts Mechas
	Accepting                  bool
	Writable                   bool
	MinFreeDisk                int64         // bytes; with less free space messages are refused
	QueueLength                int           // writes that wait
	QueueOldest                time.Duration // how long the oldest of them has waited
	IndexReady                 bool          // the search index
	IndexLag                   time.Duration // how far it is behind; negative: nobody knows
	IndexMechas                int
	Histograms                 []Histogram // since the server's start
	Refused                    []Count     // requests and frames that were refused, by their code, since the start
	Settings                   []Setting
}

// The names of the histograms.
const (
	CommitTime = "commit" // a transaction
	SyncTime   = "fsync"  // its wait for the disk
	QueueTime  = "queue"  // the wait of a write for its transaction
	PushLag    = "push"   // from a commit to the socket
)

// Histogram counts durations: Counts[i] of those up to Bounds[i] that are longer than
// Bounds[i-1]; the last one of Counts has no bound.
type Histogram struct {
	Name   string
	Bounds []time.Duration
	Counts []uint64
}

// Count is how often something named happened.
type Count struct {
	Where, Code string
	N           int64
}

// Setting is a setting of the server, in the words of its flag.
type Setting struct{ Name, Value string }
