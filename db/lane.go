package db

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

// A lane has some of the reading connections. When all of them are in use, the waiting
// Mechas take turns, however many reads each of them has. Turns and shares belong to Mechas
// and not to keys, because one Mecha can have many keys. A lane is safe for concurrent use,
// except open and close.
type lane struct {
	*turn.Stile[relay.MechaNumber] // has a place for each connection

	mu   sync.Mutex
	idle []*sqlite.Conn
}

// A readTurn is the right of a Mecha to read in a lane, once the lane grants it.
type readTurn struct {
	lane *lane
	of   relay.MechaNumber // 0: the relay itself, which has no share
	most int               // how many reads of the Mecha may wait
}

const anyNumber = turn.Unbounded

func newLane(o turn.Options) *lane { return &lane{Stile: turn.NewStile[relay.MechaNumber](o)} }

// open opens a connection for each place.
func (l *lane) open(path string, r sqlite.Role) error {
	for range l.Places {
		c, err := sqlite.Open(path, r)
		if err != nil {
			return err
		}
		l.put(c)
	}
	return nil
}

// take waits for the Mecha's turn, until ctx ends or the store closes. give must follow.
// Errors: RateLimited, if too many reads of the Mecha wait already; ShuttingDown; the
// error of ctx.
func (t readTurn) take(ctx context.Context) (*sqlite.Conn, error) {
	if err := t.lane.Take(ctx, t.of, t.most); errors.Is(err, turn.ErrClosed) {
		return nil, errShuttingDown()
	} else if err != nil {
		return nil, err
	}
	return t.lane.pop(), nil
}

func errTooManyReads(own int) error {
	e := relay.Errorf(relay.RateLimited, "%d reads of this Mecha wait for their turn already", own)
	e.RetryAfter = time.Second
	return e
}

// give returns the connection that take returned.
func (t readTurn) give(c *sqlite.Conn) {
	t.lane.put(c)
	t.lane.Give(t.of)
}

func (l *lane) put(c *sqlite.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, c)
}

// pop takes the connection that was used last, because its cache is the warmest. It returns
// nil if the lane has opened none for this place.
func (l *lane) pop() *sqlite.Conn {
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

// close waits until all connections are idle, and closes them.
func (l *lane) close() error {
	l.Hold(nil)
	return l.closeIdle()
}

// closeIdle closes the connections, all of which are idle.
func (l *lane) closeIdle() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range slices.Backward(l.idle) {
		err = errors.Join(err, c.Close())
	}
	l.idle = nil
	return err
}
