// Package readers has the connections that read a store's file, and the turns in which they are
// used. A lane is a number of connections for one kind of read, so that a read never waits for
// a longer one of another kind: keys, points (a few rows), and scans (many rows, a piece in each
// turn). In a lane the waiting Mechas take turns, and none has more than its share.
//
// The writer of the store may hold the lanes for a moment, so that SQLite can restart its log.
// The package knows no table and no noun of the service but the number of a Mecha. A caller may
// use a connection as it likes, and must give it back.
package readers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
	"relay/db/turn"
)

// A Lane has some of the reading connections. When all of them are in use, the waiting
// Mechas take turns, however many reads each of them has. Turns and shares belong to Mechas
// and not to keys, because one Mecha can have many keys. A lane is safe for concurrent use,
// except open and Close.
type Lane struct {
	*turn.Stile[relay.MechaNumber] // has a place for each connection

	mu   sync.Mutex
	idle []*sqlite.Conn
}

// A Turn is the right of a Mecha to read in a lane, once the lane grants it.
type Turn struct {
	Lane       *Lane
	Of         relay.MechaNumber // 0 is the relay itself, which has no share
	MaxWaiting int               // how many reads of the Mecha may wait
}

const AnyNumber = turn.Unbounded

func NewLane(o turn.Options) *Lane { return &Lane{Stile: turn.NewStile[relay.MechaNumber](o)} }

// open opens a connection for each place.
func (l *Lane) open(path string, r sqlite.Role) error {
	for range l.Places {
		c, err := sqlite.Open(path, r)
		if err != nil {
			return err
		}
		l.Put(c)
	}
	return nil
}

// Take waits for the Mecha's turn, until ctx ends or the store closes. If Take succeeds, the caller must call Give.
// Errors: RateLimited, if too many reads of the Mecha wait already; ShuttingDown; the
// error of ctx.
func (t Turn) Take(ctx context.Context) (*sqlite.Conn, error) {
	if err := t.Lane.Take(ctx, t.Of, t.MaxWaiting); errors.Is(err, turn.ErrClosed) {
		return nil, ErrShuttingDown()
	} else if err != nil {
		return nil, err
	}
	return t.Lane.Pop(), nil
}

func errTooManyReads(own int) error {
	e := relay.Errorf(relay.RateLimited, "%d reads of this Mecha wait for their turn already", own)
	e.RetryAfter = time.Second
	return e
}

// Give returns the connection that Take returned.
func (t Turn) Give(c *sqlite.Conn) {
	t.Lane.Put(c)
	t.Lane.Give(t.Of)
}

func (l *Lane) Put(c *sqlite.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, c)
}

// Pop takes the connection that was used last, because its cache is the warmest. It returns
// nil if the place has no connection.
func (l *Lane) Pop() *sqlite.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.idle) - 1
	if last < 0 {
		return nil
	}
	c := l.idle[last]
	l.idle = l.idle[:last]
	return c
}

// Close waits until all connections are idle, and closes them.
func (l *Lane) Close() error {
	l.Hold(nil)
	return l.closeIdle()
}

// closeIdle closes the connections, all of which are idle.
func (l *Lane) closeIdle() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range slices.Backward(l.idle) {
		err = errors.Join(err, c.Close())
	}
	l.idle = nil
	return err
}
