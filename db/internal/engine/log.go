package engine

import (
	"context"
	"encoding/json"
	"time"

	"relay/db/file"
	"relay/db/relay"
)

// A Log is where the writes of this process go in the place of the writer's queue. The
// writer without one is its own log.
type Log interface {
	// Enqueue takes the job of a write. Safe for concurrent use.
	Enqueue(j Job, of relay.MechaNumber)
	// Take returns the ops of the entries that are to be applied next; none if there are none,
	// or if this machine cannot apply them for now. Apply makes a transaction of them. Only the
	// writer's goroutine may call both.
	Take() []Op
	Apply([]Op)
	// Keeps reports whether this node makes the store's own writes, such as the expiry of
	// messages. Several nodes may do so at the same time: the second such write finds nothing
	// to do.
	Keeps() bool
	// Time returns the log's time, in Unix ms: that of the last entry that was applied.
	Time() int64
	// Used reports whether a write in the log had a nonce.
	Used(relay.NonceHash) bool
	// Waiting returns how many writes wait to be in the log, and the time of the oldest; zero
	// if none does. Safe for concurrent use.
	Waiting() (n int, oldest time.Time)
	// Await waits until this copy has applied the log up to a position that an answer of some
	// node has shown. Errors: NotCurrent, ShuttingDown, and that of ctx. Safe for concurrent use.
	Await(ctx context.Context, p relay.Position) error
	// Place returns the place of this copy in the log, as of the last commit. Safe for
	// concurrent use.
	Place() file.Place
	// Start starts the goroutines of the log. Stop proposes what waits, waits a moment for the
	// outcomes, and then follows the log no more. The writer must be running.
	Start()
	Stop()
}

// A Gate is what a node of a log knows of the others. Any goroutine may call its methods.
type Gate interface {
	// Fresh reports whether this node knows that it has all that most nodes had two seconds ago.
	// While it is false, a key that another node has revoked might still work here. So CheckFresh
	// refuses reads, and no write is proposed: one that has waited too long is refused with
	// Overloaded, and nothing was written. It is called for each request, and must not block.
	Fresh() bool
	// Seen waits until each node has applied the entry of a number, or serves no reads, since it
	// is not fresh. It returns soon after ctx has ended, with its error.
	Seen(ctx context.Context, number uint64) error
	// Status returns a JSON object that tells the state of the log, for commands.
	Status(ctx context.Context) (json.RawMessage, error)
}

// Hooks is what the store does when its Log stops.
type Hooks struct {
	// Settle ends the work of the store that goes through the log, and closes the channel once
	// its last write is on its way. It is called by the writer's goroutine.
	Settle   func(settled chan struct{})
	Unlisten func() // ends the requests of commands
}

// Keeps reports whether this process makes the store's own writes.
func (w *Store) Keeps() bool { return w.Log == nil || w.Log.Keeps() }

// Proposes hands a job of the store's own work to the log, and returns true, if the job is a
// write and there is a log. Only the writer's goroutine may call it.
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

// ErrUnknown is the error for a write that the log may have. why is the beginning of its
// sentence; cause may be nil.
func ErrUnknown(why string, cause error) error {
	return &relay.Error{Code: relay.StoreFailed, Detail: why + "; whether it was written is unknown", Cause: cause}
}
