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

// A lane has some of the reading connections. When more reads want one than there are,
// the Mechas that wait take turns, whatever the number of their reads: a Mecha with one
// read waits for at most one read of each other Mecha. Turns and shares belong to
// Mechas and not to keys, because one Mecha can have many keys. A lane is safe for
// concurrent use, except open and close.
type lane struct {
	share int                // how many reads of one Mecha are under way at most
	waits *measure.Histogram // how long reads waited that had to

	mu      sync.Mutex
	opened  int
	idle    []*sqlite.Conn
	readers map[relay.MechaNumber]*reader // those that read or wait
	ring    []*reader                     // those that wait, in the order of their turns
	held    bool                          // hold is at work: nobody gets a turn
	closed  bool
	full    chan struct{} // has a token when all connections are idle while held or closed is set
	spare   *reader       // one that was forgotten, to be used again
}

// reader is a Mecha that reads in a lane, or waits for its turn. Number 0 is the relay
// itself, which has no share.
type reader struct {
	mecha    relay.MechaNumber
	underWay int
	waiting  []chan *sqlite.Conn // each gets one connection
	inRing   bool
}

// A turn says who reads in which lane.
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

// ask takes an idle connection, or joins those that wait: then the channel gets the
// connection when it is the read's turn.
func (t turn) ask() (*sqlite.Conn, chan *sqlite.Conn, error) {
	l := t.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, errShuttingDown()
	}
	r := l.reader(t.of)
	if len(l.idle) > 0 && !l.held && l.mayRead(r) { // if a connection is idle, all that wait have their share
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

// pop takes the connection that was used last, whose cache is the warmest. l.mu is held.
func (l *lane) pop() *sqlite.Conn {
	last := len(l.idle) - 1
	c := l.idle[last]
	l.idle = l.idle[:last]
	return c
}

// next gives the idle connections to those whose turn it is. l.mu is held.
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

// first takes the first of the ring that may read out of it; nil if there is none. Few
// are passed over: a Mecha that has its share holds connections. l.mu is held.
func (l *lane) first() *reader {
	for range len(l.ring) {
		r := l.ring[0]
		l.ring = l.ring[1:]
		switch {
		case len(r.waiting) == 0: // all have withdrawn
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

// withdraw leaves those that wait. If the turn has come by now, withdraw returns the
// connection.
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

func (l *lane) noteFull() {
	if len(l.idle) == l.opened {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// hold lets reads that are under way end, and all others wait until release. It returns
// false if over fires before.
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

func (l *lane) closeIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.idle {
		c.Close()
	}
	l.idle, l.opened = nil, 0
}
