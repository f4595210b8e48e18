package search

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"relay/db/measure"
	"relay/db/relay"
)

// A Directory is a Source that reports its changes.
type Directory interface {
	Source
	// OnEntries registers a function to be called after entries have changed.
	// The function does not block.
	OnEntries(changed func())
	// Written returns how many writes the server has made, of every kind.
	Written() uint64
}

// A Service is the search index of a running server. Messages do not depend on
// it (PROTOCOL §5): while the index cannot be opened, because another process
// uses it or its folder cannot be used, Search fails with Overloaded and the
// Service tries again every few seconds. Its methods may be called from any
// goroutine.
type Service struct {
	dir     string
	log     *slog.Logger
	written func() uint64
	boost   Boost                 // nil: none
	index   atomic.Pointer[Index] // nil until it has been opened
	waits   *measure.Histogram
	cancel  context.CancelFunc
	done    chan struct{} // closed when run has returned
}

const reopenAfter = 2 * time.Second

var errUnavailable = &relay.Error{Code: relay.Overloaded, Detail: "the search index is not available at the moment",
	RetryAfter: reopenAfter}

// Serve opens the index in the folder dir, makes it if it is missing, and keeps it up to
// date with the directory until Close. boost may be nil. Serve does not fail: the log
// says why an index cannot be opened.
func Serve(dir string, directory Directory, boost Boost, log *slog.Logger) *Service {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{dir: dir, log: log, written: directory.Written, boost: boost, cancel: cancel,
		waits: measure.NewDurations(), done: make(chan struct{})}
	directory.OnEntries(s.wake)
	err := s.open()
	go s.run(ctx, directory, err)
	return s
}

func (s *Service) open() error {
	x, err := Open(s.dir, Options{Logger: s.log, Waits: s.waits, Boost: s.boost})
	if err == nil {
		x.written = s.written
		s.index.Store(x)
	}
	return err
}

// run opens the index, unless err, the result of the first attempt, is nil, and
// follows the source until Close.
func (s *Service) run(ctx context.Context, source Source, err error) {
	defer close(s.done)
	for logged := ""; err != nil; err = s.open() {
		if text := err.Error(); text != logged { // not again every two seconds
			logged = text
			s.log.Error("searches are refused: the search index cannot be opened; trying again", "folder", s.dir, "cause", err)
		}
		select {
		case <-time.After(reopenAfter):
		case <-ctx.Done():
			return
		}
	}
	if err := s.index.Load().Follow(ctx, source); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Error("the search index no longer follows the directory", "error", err)
	}
}

// Search is Index.Search; it fails with Overloaded until the index has been opened.
func (s *Service) Search(ctx context.Context, r Request) (*Result, error) {
	x := s.index.Load()
	if x == nil {
		return nil, errUnavailable
	}
	return x.Search(ctx, r)
}

// Ready is Index.Ready; false until the index has been opened.
func (s *Service) Ready() bool {
	x := s.index.Load()
	return x != nil && x.Ready()
}

// Progress is Index.Progress; its zero value until the index has been opened.
func (s *Service) Progress() Progress {
	if x := s.index.Load(); x != nil {
		return x.Progress()
	}
	return Progress{}
}

// Waits returns the wait times of searches that could not run at once.
func (s *Service) Waits() *measure.Histogram { return s.waits }

func (s *Service) wake() {
	if x := s.index.Load(); x != nil {
		x.Wake()
	}
}

// Close stops following the directory and closes the index.
func (s *Service) Close() error {
	s.cancel()
	<-s.done
	if x := s.index.Load(); x != nil {
		return x.Close()
	}
	return nil
}
