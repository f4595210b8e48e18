package metrics

import (
	"context"
	"sync"
	"time"

	"relay/db"
)

// slowCounts are the counts for which the store reads many rows. They are made beside
// the scrapes: a scrape gets the latest one, and begins the next if that is due.
type slowCounts struct {
	db   *db.DB
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	pending db.Pending
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

func newSlowCounts(d *db.DB) *slowCounts {
	s := &slowCounts{db: d}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// lag gives the lag of the search index, which has applied a revision.
func (s *slowCounts) lag(revision int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(s.ctx, lagTimeout)
	defer cancel()
	return s.db.IndexLag(ctx, revision)
}

// get gives the pending messages; known is false before the first count, and if the latest one has failed.
func (s *slowCounts) get() (pending db.Pending, known bool) {
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

// begin begins a count if it is due. It gives the channel of the count under way, nil if
// there is none.
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
	p, err := s.db.CountPending(s.ctx)
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
}
