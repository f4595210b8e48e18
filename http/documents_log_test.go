package http_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/replication"
)

// A shortLog is the log of one node, in memory, until it loses what it has.
type shortLog struct {
	mu      sync.Mutex
	entries []replication.Entry
	lost    bool
	changed chan struct{} // closed and made again at each change
}

// change does something to the log and wakes those that follow it.
func (l *shortLog) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *shortLog) Append(_ context.Context, _ string, envelope []byte) error {
	l.change(func() {
		l.entries = append(l.entries, replication.Entry{Number: uint64(len(l.entries) + 1), At: time.Now(), Data: append([]byte(nil), envelope...)})
	})
	return nil
}

// Follow fails for good with the first entry after the loss.
func (l *shortLog) Follow(ctx context.Context, after uint64, deliver func([]replication.Entry) error) error {
	for {
		l.mu.Lock()
		entries, lost, changed := l.entries[after:], l.lost, l.changed
		l.mu.Unlock()
		switch {
		case len(entries) > 0 && lost:
			return fmt.Errorf("entry %d: %w", after+1, replication.ErrLogTruncated)
		case len(entries) > 0:
			if err := deliver(entries); err != nil {
				return err
			}
			after += uint64(len(entries))
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func init() { scenarios["a log that is lost"] = driveALogThatIsLost }

// driveALogThatIsLost has nodes of a cluster whose log fails while it takes what a request writes:
// of a handshake and of a question for a ticket, that is the nonce.
func driveALogThatIsLost(t *testing.T, d *drive) {
	for _, operation := range []string{opSocket, opTicket} {
		log := &shortLog{changed: make(chan struct{})}
		r := mustServe(t, func(s *settings) { s.db.Log = &replication.Following{Log: log, Found: true} })
		alice, spare := r.alice()
		c := alice.good(operation, spare)
		log.change(func() { log.lost = true })
		a := r.mustDo(c)
		a.wantProblem(500, relay.StoreFailed)
		d.hold(operation, c, a)
	}
}
