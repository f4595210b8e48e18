package metrics

import (
	"context"
	"sync"
	"time"

	"relay/db/look"
	"relay/db/look/backlog"
)

// slowCounts are the counts for which the store reads many rows. They are made independently of the scrapes: a
// scrape gets the latest one, and begins the next if that is due.
type slowCounts struct {
	path string // of the file
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	file    *look.Inspector // nil: it was not opened yet
	pending backlog.Pending
	known   bool          // the latest count has not failed
	next    time.Time     // when a scrape may begin the next count
	ended   chan struct{} // closed when the count under way has ended; nil: none is
	closed  bool
}

const (
	countEvery = 5 * time.Second        // the least time from the end of a count to the next one
	countShare = 50                     // a count that took a second is made again after so many seconds
	countWait  = 500 * time.Millisecond // how long a scrape waits for a count
	lagTimeout = 2 * time.Second
)

func newSlowCounts(path string) *slowCounts {
	s := &slowCounts{path: path}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// inspect returns what reads the file. If it cannot be opened, as on a full disk, the next scrape tries again.
func (s *slowCounts) inspect() (*look.Inspector, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil || s.closed {
		return s.file, s.ctx.Err()
	}
	var err error
	s.file, err = look.Inspect(s.path)
	return s.file, err
}

// lag returns the lag of the search index, which has applied a revision.
func (s *slowCounts) lag(revision int64) (time.Duration, error) {
	file, err := s.inspect()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, lagTimeout)
	defer cancel()
	return backlog.IndexLag(ctx, file, revision, time.Now())
}

// get returns the pending messages; known is false before the first count, and if the latest one has failed.
func (s *slowCounts) get() (pending backlog.Pending, known bool) {
	if ended := s.begin(); ended != nil {
		wait := time.NewTimer(countWait)
		defer wait.Stop()
		select {
		case <-ended:
		case <-wait.C:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending, s.known
}

// begin begins a count if it is due. It returns the channel of the running count, or nil.
func (s *slowCounts) begin() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil && !s.closed && !time.Now().Before(s.next) {
		s.ended = make(chan struct{})
		s.wg.Go(s.count)
	}
	return s.ended
}

func (s *slowCounts) count() {
	began := time.Now()
	file, err := s.inspect()
	var p backlog.Pending
	if err == nil {
		p, err = backlog.CountPending(s.ctx, file, began)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.known = p, err == nil // an older count might be wrong by now
	s.next = time.Now().Add(max(countEvery, countShare*time.Since(began)))
	close(s.ended)
	s.ended = nil
}

func (s *slowCounts) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
	if s.file != nil {
		s.file.Close()
	}
}
