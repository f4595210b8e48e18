package db

import (
	"context"
	"slices"
	"sync"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/measure"
	"relay/db/relay"
)

// A lane has some of the reading connections. When all of them are in use, the waiting
// Mechas take turns, however many reads each of them has: a Mecha with one read waits for
// at most one read of each other Mecha. Turns and shares belong to Mechas and not to keys,
// because one Mecha can have many keys. A lane is safe for concurrent use, except open and
// close.
type lane struct {
	share int                // how many reads of one Mecha are under way at most
	waits *measure.Histogram // how long reads waited that had to

	mu      sync.Mutex
	opened  int
	idle    []*sqlite.Conn
	readers map[relay.MechaNumber]*reader // the Mechas that read or wait
	ring    []*reader                     // the Mechas that wait, in the order of their turns
	held    bool                          // hold has been called, so nobody gets a turn before release
	closed  bool
	full    chan struct{} // has a token when all connections are idle while held or closed is set
	spare   *reader       // a forgotten reader, which the next Mecha uses
}

// reader is a Mecha that reads in a lane, or waits for its turn. Number 0 is the relay
// itself, which has no share.
type reader struct {
	mecha    relay.MechaNumber
	underWay int
	waiting  []chan *sqlite.Conn // each gets one connection
	inRing   bool
}

// A turn is the right of a Mecha to read in a lane, once the lane grants it.
type turn struct {
	lane *lane
	of   relay.MechaNumber // 0: the relay itself
	most int               // how many reads of the Mecha may wait; anyNumber: no limit
}

const anyNumber = -1

func newLane(share int, waits *measure.Histogram) *lane {
	return &lane{share: share, waits: waits, readers: map[relay.MechaNumber]*reader{}, full: make(chan struct{}, 1)}
}

func (l *lane) open(path string, r sqlite.Role, conns int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range conns {
		c, err := sqlite.Open(path, r)
		if err != nil {
			return err
		}
		l.idle = append(l.idle, c)
		l.opened++
	}
	return nil
}

// take waits for the Mecha's turn, until ctx ends or the store closes. give must follow.
// Errors: RateLimited, if too many reads of the Mecha wait already; ShuttingDown; the
// error of ctx.
func (t turn) take(ctx context.Context, closed <-chan struct{}) (*sqlite.Conn, error) {
	c, wait, err := t.ask()
	if c != nil || err != nil {
		return c, err
	}
	began := time.Now()
	defer func() { t.lane.waits.Observe(time.Since(began)) }()
	select {
	case c := <-wait:
		return c, nil
	case <-closed:
		err = errShuttingDown()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if c := t.withdraw(wait); c != nil { // its turn came in the same moment
		t.give(c)
	}
	return nil, err
}

// ask takes an idle connection. If there is none for the Mecha, ask queues the read, and
// the channel gets a connection when it is the read's turn.
func (t turn) ask() (*sqlite.Conn, chan *sqlite.Conn, error) {
	l := t.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, errShuttingDown()
	}
	r := l.reader(t.of)
	if len(l.idle) > 0 && !l.held && l.mayRead(r) { // nobody is passed over: while a connection is idle, every Mecha that waits has its share
		r.underWay++
		return l.pop(), nil, nil
	}
	if t.most != anyNumber && len(r.waiting) >= t.most {
		e := relay.Errorf(relay.RateLimited, "%d reads of this Mecha wait for their turn already", len(r.waiting))
		e.RetryAfter = time.Second
		l.forget(r)
		return nil, nil, e
	}
	wait := make(chan *sqlite.Conn, 1)
	r.waiting = append(r.waiting, wait)
	if !r.inRing {
		r.inRing, l.ring = true, append(l.ring, r)
	}
	return nil, wait, nil
}

// reader finds or makes the entry of a Mecha. l.mu is held.
func (l *lane) reader(of relay.MechaNumber) *reader {
	r := l.readers[of]
	if r == nil {
		if r, l.spare = l.spare, nil; r == nil {
			r = &reader{}
		}
		r.mecha = of
		l.readers[of] = r
	}
	return r
}

func (l *lane) mayRead(r *reader) bool { return r.mecha == 0 || r.underWay < l.share }

// pop takes the connection that was used last, because its cache is the warmest. l.mu is
// held.
func (l *lane) pop() *sqlite.Conn {
	last := len(l.idle) - 1
	c := l.idle[last]
	l.idle = l.idle[:last]
	return c
}

// next gives the idle connections to the Mechas whose turn has come. l.mu is held.
func (l *lane) next() {
	for len(l.idle) > 0 && !l.held {
		r := l.first()
		if r == nil {
			return
		}
		r.waiting[0] <- l.pop()
		r.waiting = r.waiting[1:]
		r.underWay++
		if r.inRing = len(r.waiting) > 0; r.inRing {
			l.ring = append(l.ring, r)
		}
	}
}

// first takes out of the ring the first Mecha that may read; nil if there is none. It
// passes over few, because a Mecha that has its share holds connections. l.mu is held.
func (l *lane) first() *reader {
	for range len(l.ring) {
		r := l.ring[0]
		l.ring = l.ring[1:]
		switch {
		case len(r.waiting) == 0: // all its reads have withdrawn
			r.inRing = false
			l.forget(r)
		case l.mayRead(r):
			return r
		default:
			l.ring = append(l.ring, r)
		}
	}
	return nil
}

// forget removes a Mecha that neither reads nor waits. l.mu is held.
func (l *lane) forget(r *reader) {
	if r.underWay == 0 && !r.inRing {
		delete(l.readers, r.mecha)
		*r = reader{waiting: r.waiting[:0]}
		l.spare = r
	}
}

// withdraw takes a waiting read back. If its turn has come in the meantime, withdraw returns
// the connection.
func (t turn) withdraw(wait chan *sqlite.Conn) *sqlite.Conn {
	t.lane.mu.Lock()
	defer t.lane.mu.Unlock()
	select {
	case c := <-wait:
		return c
	default:
	}
	r := t.lane.readers[t.of]
	r.waiting = slices.DeleteFunc(r.waiting, func(w chan *sqlite.Conn) bool { return w == wait })
	return nil
}

// give returns the connection that take gave.
func (t turn) give(c *sqlite.Conn) {
	l := t.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.readers[t.of]
	r.underWay--
	l.forget(r)
	l.idle = append(l.idle, c)
	if l.held || l.closed {
		l.noteFull()
		return
	}
	l.next()
}

// noteFull puts the token into full if all connections are idle. l.mu is held.
func (l *lane) noteFull() {
	if len(l.idle) == l.opened {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// hold waits for the reads that are under way, while all others wait until release. It
// returns false if over fires first.
func (l *lane) hold(over <-chan time.Time) bool {
	l.mu.Lock()
	l.held = true
	l.noteFull()
	l.mu.Unlock()
	select {
	case <-l.full:
		return true
	case <-over:
		return false
	}
}

func (l *lane) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	select {
	case <-l.full:
	default:
	}
	l.next()
}

// close waits until all connections are idle, and closes them.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.noteFull()
	l.mu.Unlock()
	<-l.full
	l.closeIdle()
}

// closeIdle closes the connections, all of which are idle.
func (l *lane) closeIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.idle {
		c.Close()
	}
	l.idle, l.opened = nil, 0
}
