package cmd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/search"
)

// finder is the server's search index, as soon as it can be had. Messages do
// not need it (PROTOCOL §5): while it cannot be opened, because another process
// holds it or its folder cannot be used, searches are refused, and it is tried
// again. Search and wake may be called from any goroutine.
type finder struct {
	dir    string
	db     *db.DB
	log    *slog.Logger
	index  atomic.Pointer[search.Index] // nil: not opened yet
	cancel context.CancelFunc
	done   chan struct{}

	processors int // of Go, before the index was busy
}

const openAgainAfter = 2 * time.Second

var errNoSearch = &relay.Error{Code: relay.Overloaded, Detail: "the search index cannot be used at the moment", RetryAfter: openAgainAfter}

// startFinder opens the index beside the database, and follows the directory
// from then on.
func startFinder(d *db.DB, log *slog.Logger) *finder {
	ctx, cancel := context.WithCancel(context.Background())
	f := &finder{dir: d.Path() + ".index", db: d, log: log, cancel: cancel, done: make(chan struct{})}
	d.OnEntries(f.wake)
	err := f.open()
	go f.run(ctx, err)
	return f
}

func (f *finder) open() error {
	x, err := search.Open(f.dir, search.Options{Logger: f.log, Busy: f.yield})
	if err == nil {
		f.index.Store(x)
	}
	return err
}

// run follows until close. failed is why the first attempt to open did not succeed.
func (f *finder) run(ctx context.Context, failed error) {
	defer close(f.done)
	for said := ""; failed != nil; failed = f.open() {
		if text := failed.Error(); text != said { // once, not every two seconds
			said = text
			f.log.Error("searches are refused: the search index cannot be opened. Messages are served; it is tried again", "folder", f.dir, "cause", failed)
		}
		select {
		case <-time.After(openAgainAfter):
		case <-ctx.Done():
			return
		}
	}
	if err := f.index.Load().Follow(ctx, f.db); err != nil && !errors.Is(err, context.Canceled) {
		f.log.Error("the search index no longer follows", "error", err)
	}
}

// Search is search.Index.Search; it fails with Overloaded while there is no index.
func (f *finder) Search(ctx context.Context, q relay.SearchRequest) (*relay.SearchResult, error) {
	x := f.index.Load()
	if x == nil {
		return nil, errNoSearch
	}
	return x.Search(ctx, q)
}

// yield lets messages through while the index is rebuilt. The goroutines that do
// it keep each of Go's processors for 10 ms at a time, and a message waits for
// one at each of the goroutines on its way. With more processors than there are
// cores the system shares out the cores, and prefers whoever has slept.
func (f *finder) yield(busy bool) {
	switch {
	case busy:
		f.processors = runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(f.processors + 4)
	case os.Getenv("GOMAXPROCS") == "":
		runtime.SetDefaultGOMAXPROCS()
	default:
		runtime.GOMAXPROCS(f.processors)
	}
}

func (f *finder) wake() {
	if x := f.index.Load(); x != nil {
		x.Wake()
	}
}

// close ends the following and closes the index.
func (f *finder) close() error {
	f.cancel()
	<-f.done
	if x := f.index.Load(); x != nil {
		return x.Close()
	}
	return nil
}
