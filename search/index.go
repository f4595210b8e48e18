// Package search finds Mechas by what they can do: the discovery search of
// PROTOCOL §5. A server uses a Service, which opens an Index and keeps it up to
// date.
//
// An Index is a bleve index in a folder of its own. All its data comes from the
// store of profiles. The index stores, in the same batch as the documents, the
// last revision that it has applied (the watermark), and continues from there.
// An index that is lost, damaged, of another version or of another store is
// rebuilt. Searches are answered meanwhile from the part that is there.
//
// Searches read the segments of bleve's snapshot (view.go), not bleve's readers (around_test.go).
// BenchmarkSnapshot, with 20,000 profiles: the postings of a word are read at least 5 times as fast,
// the lengths of all texts 15 times, and 200 records 6 times. Before an index is opened, store.go
// reads its files; that gains no time. Bleve accepts segments whose checksum is wrong, and may panic
// later in a goroutine of its own, which ends the process.
//
// Bleve stores the postings; the ranking is ours. A search reads the postings of
// its words and scores every profile by BM25 over one weighted text. It then
// scores the best two hundred again by their records (see record), and puts
// exact names first. ranking.go has all constants and word lists that decide
// the order.
//
// A Boost adds to the scores what the texts do not show (boost.go).
//
// The statistics are ours too, and exact, so the order depends on the profiles alone: one batch,
// many batches or a rebuild after deletions lead to the same order.
//
// For another order, begin in ranking.go and rerank.go.
package search

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/measure"
	"relay/db/relay"
	"relay/db/turn"
)

// Source is the store of profiles.
type Source interface {
	// EntriesAfter returns at most limit entries with a revision greater than
	// the given one, in the order of revisions: each Mecha once, as it is now. A
	// removed Mecha has Removed set. An empty list means that there are no more.
	EntriesAfter(ctx context.Context, revision int64, limit int) ([]relay.Entry, error)
}

// Options are the settings of an index. The zero value is usable.
type Options struct {
	Logger *slog.Logger // default: discard
	// Concurrency is the number of searches that run at once, at most half of them
	// (rounded up) for one caller; more wait. Default: GOMAXPROCS.
	Concurrency int
	// Wait is the longest time that a search waits to run; then it fails with
	// ErrBusy or ErrCallerBusy. Default: 500 ms, in which several searches end.
	Wait time.Duration
	// Budget is the longest time that a search runs; then it answers with the
	// hits found so far. Default: 250 ms.
	Budget time.Duration
	// Waits records the wait times of searches that could not run at once. Default: none.
	Waits *measure.Histogram
	Boost Boost // default: none
}

// Progress is how far an index has followed its store.
type Progress struct {
	Ready    bool           // the index has caught up with the store since it was opened
	Revision int64          // the last revision applied
	Entries  int            // Mechas in the index
	Boosted  relay.Position // of the last change that the Boost has taken
	// why the index was rebuilt, from nothing or from an older state, at or after Open, or ""
	Rebuilt string
}

// Index is the search index. Its methods may be called from any goroutine.
type Index struct {
	dir     string
	log     *slog.Logger
	budget  time.Duration
	turns   *turn.Stile[relay.Address]
	changed chan struct{} // signals Follow; capacity 1, since one signal stands for any number of changes
	stop    context.CancelFunc
	stopped context.Context
	follows sync.WaitGroup

	boost Boost // nil: none

	// written returns how many writes the running server has made: while Follow applies many
	// entries, it raises GOMAXPROCS and rests for the sake of messages. It is nil without a
	// server.
	written func() uint64

	mu      sync.RWMutex // locked for reading to use store, for writing to replace it
	store   *store       // nil after Close
	rebuilt string

	following atomic.Bool
	ready     atomic.Bool
	damaged   atomic.Bool // a search found damage; Follow then rebuilds the index
}

var errClosed = &relay.Error{Code: relay.ShuttingDown, Detail: "the search index is closed"}

// Open opens the index in the folder dir. If it is missing, damaged or of another
// version, Open creates an empty index, which Follow fills; Progress().Rebuilt and the
// log then say why. Only the owner can read the folder and the index afterwards. Open
// fails if the folder cannot be used or another process has the index open.
func Open(dir string, o Options) (*Index, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Concurrency <= 0 {
		o.Concurrency = runtime.GOMAXPROCS(0)
	}
	if o.Wait <= 0 {
		o.Wait = 500 * time.Millisecond
	}
	if o.Budget <= 0 {
		o.Budget = 250 * time.Millisecond
	}
	x := &Index{dir: dir, log: o.Logger, budget: o.Budget,
		boost: o.Boost, turns: newTurns(o), changed: make(chan struct{}, 1)}
	x.restrictPermissions()
	s, err := openStore(dir, o.Logger)
	if err != nil && !errors.Is(err, errLocked) {
		s, err = x.recreate(err)
	}
	if err != nil {
		return nil, err
	}
	if s.lost != "" {
		x.rebuilt = s.lost
		x.log.Warn("repairing the search index", "folder", x.dir, "cause", s.lost)
	}
	x.store = s
	x.stopped, x.stop = context.WithCancel(context.Background())
	return x, nil
}

// recreate replaces an index that cannot be used by an empty one.
func (x *Index) recreate(cause error) (*store, error) {
	if errors.Is(cause, errNoIndex) {
		x.log.Info("creating the search index: none exists yet", "folder", x.dir)
	} else {
		x.rebuilt = cause.Error()
		x.log.Warn("rebuilding the search index", "folder", x.dir, "cause", cause)
	}
	if err := removeStore(x.dir); err != nil {
		return nil, err
	}
	defer x.restrictPermissions()
	return createStore(x.dir)
}

// replace does the same with an index in use.
func (x *Index) replace(cause error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.store == nil {
		return errClosed
	}
	x.ready.Store(false)
	if err := x.store.close(); err != nil {
		x.log.Warn("the damaged search index cannot be closed", "cause", err)
	}
	s, err := x.recreate(cause)
	if err != nil {
		// The closed store stays: searches in it fail, and Follow tries again.
		return err
	}
	x.store = s
	x.damaged.Store(false)
	return nil
}

// Close ends Follow, waits for Follow and for running searches, and closes the
// files. A second Close does nothing.
func (x *Index) Close() error {
	x.mu.Lock() // with this lock held, a Follow that begins now has either entered, or cannot
	x.stop()
	x.mu.Unlock()
	x.follows.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.store == nil {
		return nil
	}
	s := x.store
	x.store = nil
	return s.close()
}

// Wake notifies Follow that the store has changed. It never blocks.
func (x *Index) Wake() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// Ready reports whether the index has caught up with the store since it was
// opened. Before that, searches find only the entries applied so far.
func (x *Index) Ready() bool { return x.ready.Load() }

// Progress returns how far the index has followed its store.
func (x *Index) Progress() Progress {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := Progress{Ready: x.ready.Load(), Rebuilt: x.rebuilt}
	if x.boost != nil {
		p.Boosted = x.boost.At()
	}
	if x.store == nil {
		return p
	}
	if v, err := x.store.viewSafely(); err == nil {
		p.Revision, p.Entries = v.position.revision, v.totals.documents
		v.Close()
	}
	return p
}
