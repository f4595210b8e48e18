// Package search finds the Mecha that can do it: the discovery search of
// PROTOCOL §5.
//
// An Index is a bleve index in a folder of its own. It is derived: everything
// in it comes from the store of profiles, it follows that store by a watermark
// kept in the same batch as the documents, and whatever is wrong with it (lost,
// damaged, of another version, of another store) is cured by making it anew.
// Searching goes on meanwhile, with what is there.
//
// Bleve keeps the postings; the ranking is ours. A search walks the postings of
// its words and scores every profile by BM25 over one weighted text, judges the
// best two hundred again by their records (see record), and puts exact names
// first. Everything that a person may want to change about the order stands in
// ranking.go.
//
// The statistics are ours too, and exact, so the order depends on the profiles
// alone: one batch, many batches or a rebuild after deletions give the same.
package search

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/relay"
)

// Source is the store of profiles.
type Source interface {
	// EntriesAfter gives at most limit entries whose revision is greater than
	// revision, in the order of revisions: each Mecha once, as it stands now. A
	// Mecha that is gone comes with Removed set. No more entries is no error.
	EntriesAfter(ctx context.Context, revision int64, limit int) ([]relay.Entry, error)
}

// Options says how to open an index. The zero value works.
type Options struct {
	Logger *slog.Logger // default: discard
	// Concurrency is how many searches run at once; others wait. Default: GOMAXPROCS.
	Concurrency int
	// Wait is how long a search waits for its turn before it fails with
	// ErrBusy. Default: 250 ms.
	Wait time.Duration
	// Budget is how long a search may run; what it has found by then is the
	// answer. Default: 250 ms.
	Budget time.Duration
	// Busy, if set, is called with true when the index begins to catch up with
	// much, as in a rebuild, and with false when that is over. It must not block.
	Busy func(bool)
}

// Progress says how far an index has followed its store.
type Progress struct {
	Ready    bool   // it has caught up with the store since it was opened
	Revision int64  // the last revision applied
	Entries  int    // Mechas in the index
	Rebuilt  string // why it was made anew, wholly or from its last good state, when it was opened or since; "" if it was not
}

// Index is the search index. Its methods may be called from any goroutine.
type Index struct {
	dir     string
	log     *slog.Logger
	wait    time.Duration
	budget  time.Duration
	turns   chan struct{}
	busy    func(bool)
	bell    chan struct{} // capacity 1: many rings are one
	stop    context.CancelFunc
	stopped context.Context
	follows sync.WaitGroup

	mu      sync.RWMutex // held for reading by who uses store, for writing to replace it
	store   *store       // nil after Close
	rebuilt string

	following atomic.Bool
	ready     atomic.Bool
	damaged   atomic.Bool // a search met damage; the follower will see to it
}

var errClosed = &relay.Error{Code: relay.ShuttingDown, Detail: "the search index is closed"}

// Open opens the index in dir, and makes an empty one there if there is none
// or if what is there is damaged or of another version: Progress().Rebuilt and
// the log say why, and Follow fills it. The folder and the index in it become
// the owner's alone. It fails if the folder cannot be used or another process
// uses it.
func Open(dir string, o Options) (*Index, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Concurrency <= 0 {
		o.Concurrency = runtime.GOMAXPROCS(0)
	}
	if o.Wait <= 0 {
		o.Wait = 250 * time.Millisecond
	}
	if o.Budget <= 0 {
		o.Budget = 250 * time.Millisecond
	}
	if o.Busy == nil {
		o.Busy = func(bool) {}
	}
	x := &Index{dir: dir, log: o.Logger, wait: o.Wait, budget: o.Budget, busy: o.Busy,
		turns: make(chan struct{}, o.Concurrency), bell: make(chan struct{}, 1)}
	x.private()
	s, err := openStore(dir, o.Logger)
	if err != nil && !errors.Is(err, errLocked) {
		s, err = x.remake(err)
	}
	if err != nil {
		return nil, err
	}
	if s.lost != "" {
		x.rebuilt = s.lost
		x.log.Warn("search index is repaired", "folder", x.dir, "cause", s.lost)
	}
	x.store = s
	x.stopped, x.stop = context.WithCancel(context.Background())
	return x, nil
}

// remake makes an empty index in place of one that cannot be used.
func (x *Index) remake(cause error) (*store, error) {
	if errors.Is(cause, errNoIndex) {
		x.log.Info("search index is made: there is none yet", "folder", x.dir)
	} else {
		x.rebuilt = cause.Error()
		x.log.Warn("search index is made anew", "folder", x.dir, "cause", cause)
	}
	if err := removeStore(x.dir); err != nil {
		return nil, err
	}
	defer x.private()
	return createStore(x.dir)
}

// replace does the same while the index is in use.
func (x *Index) replace(cause error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.store == nil {
		return errClosed
	}
	x.ready.Store(false)
	if err := x.store.close(); err != nil {
		x.log.Warn("damaged search index does not close", "cause", err)
	}
	s, err := x.remake(cause)
	if err != nil {
		// The closed store stays: its searches fail, and the next attempt tries again.
		return err
	}
	x.store = s
	x.damaged.Store(false)
	return nil
}

// Close ends Follow, waits for it and for searches under way, and closes the
// files. A second Close does nothing.
func (x *Index) Close() error {
	x.mu.Lock() // so that a Follow that begins now either is waited for or does not begin
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

// Wake tells the follower that the store has changed. It never blocks.
func (x *Index) Wake() {
	select {
	case x.bell <- struct{}{}:
	default:
	}
}

// Ready tells whether the index has caught up with the store since it was
// opened. Before that, searches answer from what is there.
func (x *Index) Ready() bool { return x.ready.Load() }

// Progress tells how far the index has come.
func (x *Index) Progress() Progress {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := Progress{Ready: x.ready.Load(), Rebuilt: x.rebuilt}
	if x.store == nil {
		return p
	}
	if v, err := x.store.viewSafely(); err == nil {
		p.Revision, p.Entries = v.position.revision, v.totals.documents
		v.Close()
	}
	return p
}
