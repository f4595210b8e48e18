package engine

import (
	"context"
	"encoding/json"
	"time"

	"relay/db/file"
	"relay/db/relay"
)

// A Log takes the writes of this process, instead of the writer's queue. A writer without
// a Log is its own log.
type Log interface {
	// Enqueue takes the job of a write. Any goroutine may call it.
	Enqueue(j Job, of relay.MechaNumber)
	// Take returns the jobs of the entries that are to be applied next. It returns none if this
	// machine cannot apply them for now. Apply makes a transaction of them. Only the writer's
	// goroutine may call both.
	Take() []QueuedJob
	Apply([]QueuedJob)
	// Keeps reports whether this node issues maintenance writes, such as the expiry of
	// messages. Several nodes may do so at the same time: the second such write finds nothing
	// to do.
	Keeps() bool
	// Time returns the log's time in Unix ms, which is the time of the last entry that was applied.
	Time() int64
	// Used reports whether a write in the log had a nonce.
	Used(relay.NonceHash) bool
	// Waiting returns how many writes wait to be in the log, and the time of the oldest. Any
	// goroutine may call it.
	Waiting() (n int, oldest time.Time)
	// Await waits until this copy has applied the log up to a position that an answer of some
	// node has shown. Errors: NotCurrent, ShuttingDown, and the error of ctx. Any goroutine may
	// call it.
	Await(ctx context.Context, p relay.Position) error
	// Place returns the place of this copy in the log, as of the last commit. Any
	// goroutine may call it.
	Place() file.Place
	// Start starts the goroutines of the log. Stop proposes the waiting writes, waits a moment
	// for the outcomes, and then stops following the log. The writer must be running.
	Start()
	Stop()
}

// A Gate knows the state of the other nodes of a cluster. Any goroutine may call its methods.
type Gate interface {
	// Fresh reports whether this node knows that it has everything that most nodes had two
	// seconds ago. While it is false, a key that another node has revoked might still work here.
	// So CheckFresh refuses reads, and no write is proposed: a write that has waited too long is
	// refused with Overloaded, and nothing was written. It is called for each request, and must
	// not block.
	Fresh() bool
	// Seen waits until each node has applied the entry with a number, or refuses reads because
	// it is not fresh. It returns soon after ctx has ended, with its error.
	Seen(ctx context.Context, number uint64) error
	// Status returns a JSON object with the state of the log, for commands.
	Status(ctx context.Context) (json.RawMessage, error)
}

// Hooks are what the store does when its Log stops.
type Hooks struct {
	// Settle ends the store's work that goes through the log, and closes the channel once it
	// has queued its last write. The writer's goroutine calls it.
	Settle   func(settled chan struct{})
	Unlisten func() // ends the requests of commands
}

// Keeps reports whether this process issues maintenance writes.
func (w *Store) Keeps() bool { return w.Log == nil || w.Log.Keeps() }

// Proposes hands a maintenance job to the log, and returns true, if the job is a write and
// there is a log. Only the writer's goroutine may call it.
func (w *Store) Proposes(j Job) bool {
	if w.Log == nil || j.Shared() == nil {
		return false
	}
	w.Log.Enqueue(j, 0)
	return true
}

func ErrNonceReused() error {
	return relay.Errorf(relay.NonceReused, "this nonce was used before with this key; every request needs a fresh one")
}

// ErrUnknown is the error for a write that the log may have. why begins its sentence;
// cause may be nil.
func ErrUnknown(why string, cause error) error {
	return &relay.Error{Code: relay.StoreFailed, Detail: why + "; whether it was written is unknown", Cause: cause}
}
