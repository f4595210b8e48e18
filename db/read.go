package db

import (
	"context"
	"sync"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
	"relay/db/turn"
)

// rx is a transaction that reads one state of the file.
type rx struct {
	c *sqlite.Conn
	*lookups
	now time.Time // messages whose ExpiresAt is not later count as expired
	// The texts that a tx has read by their numbers, for the caches; nil if nothing is written.
	foundWords  map[int64]string
	foundMechas map[int64]relay.Address
}

// A viewer reads the file for somebody. Each call runs its function in a transaction of its own,
// which sees one state of the file. A DB gives one to each Mecha (DB.as); an Inspector is one.
type viewer interface {
	point(context.Context, func(*rx) error) error // for a read of a few rows
	scan(context.Context, func(*rx) error) error  // for a piece of a read that looks through many rows
}

// get makes a read that has a result. in is a method of a viewer.
func get[T any](ctx context.Context, in func(context.Context, func(*rx) error) error, read func(*rx) (T, error)) (v T, err error) {
	err = in(ctx, func(x *rx) error {
		v, err = read(x)
		return err
	})
	return v, err
}

// lookups are the ids, caches and late indexes of a file. All who read a file in
// this process share them.
type lookups struct {
	ids       *relay.IDs
	words     *names[string]
	mechas    *names[relay.Address]
	late      *lateIndex
	lateWords *lateWords
}

func newLookups() *lookups {
	l := &lookups{mechas: newMechas(), late: &lateIndex{}, lateWords: &lateWords{}}
	l.words = newWords(l.findWord)
	return l
}

// The readers have three lanes, each with connections of its own, so that a read never
// waits for a longer one of another kind. The shares and the bounds are those of one Mecha.
// A read beyond the bound of waiting reads is refused with RateLimited.
const (
	keyConns   = 1    // for keys and positions: reads of a few rows, for the relay itself
	pointConns = 4    // for messages, profiles and short pages: reads that cost about as much as a request
	pointShare = 3    // connections in use, so that another Mecha finds one
	pointsWait = 1024 // waiting reads
	scanConns  = 2    // for reads that look through many rows, one piece in each turn
	scanShare  = 1
	scansWait  = 64
)

// readerPool has the reading connections. It is safe for concurrent use, except open
// and close.
type readerPool struct{ keys, points, scans *lane }

// newReaderPool makes a pool whose reads wait no longer once closed is closed.
func newReaderPool(m *Measures, closed <-chan struct{}) *readerPool {
	return &readerPool{
		keys:   newLane(turn.Options{Places: keyConns, Closed: closed, Waits: m.KeyWait}),
		points: newLane(turn.Options{Places: pointConns, Share: pointShare, Refused: errTooManyReads, Closed: closed, Waits: m.PointWait}),
		scans:  newLane(turn.Options{Places: scanConns, Share: scanShare, Refused: errTooManyReads, Closed: closed, Waits: m.ScanWait}),
	}
}

func (p *readerPool) lanes() []*lane { return []*lane{p.scans, p.points, p.keys} }

func (p *readerPool) open(path string, r sqlite.Role) error {
	for _, l := range p.lanes() {
		if err := l.open(path, r); err != nil {
			return err
		}
	}
	return nil
}

// point returns the turn of a read of a few rows, scan the turn of a read that looks through
// many rows. Both are for a Mecha, or for the relay itself (0).
func (p *readerPool) point(of relay.MechaNumber) readTurn { return readTurn{p.points, of, pointsWait} }
func (p *readerPool) scan(of relay.MechaNumber) readTurn  { return readTurn{p.scans, of, scansWait} }

// key returns the turn of a read on which others wait, such as the read of a key, which lets
// a request in or ends the sockets of a revoked key. It waits for no other kind of read.
func (p *readerPool) key() readTurn { return readTurn{p.keys, 0, anyNumber} }

// hold takes the connections of points and scans out of use, and waits up to timeout for
// the reads that are under way. Further reads wait until release, which must follow. hold
// leaves the keys alone, so that requests are let in or refused meanwhile. It reports
// whether the held connections are idle.
func (p *readerPool) hold(timeout time.Duration) bool {
	over := time.NewTimer(timeout)
	defer over.Stop()
	return p.scans.Hold(over.C) && p.points.Hold(over.C)
}

// holdAll holds all three lanes.
func (p *readerPool) holdAll(timeout time.Duration) bool {
	over := time.NewTimer(timeout)
	defer over.Stop()
	return p.hold(timeout) && p.keys.Hold(over.C)
}

// closeHeld closes the connections, all of which holdAll has found idle. The pool may be
// opened again before release.
func (p *readerPool) closeHeld() {
	for _, l := range p.lanes() {
		l.closeIdle()
	}
}

func (p *readerPool) release() {
	for _, l := range p.lanes() {
		l.Release()
	}
}

// close waits until all connections are idle, and closes them.
func (p *readerPool) close() {
	for _, l := range p.lanes() {
		l.close()
	}
}

// topic is what may have changed for the listeners, as bits.
type topic uint8

const (
	keysChanged    topic = 1 << iota // a key may have been revoked or changed
	entriesChanged                   // a Mecha or a profile may have
	learnedChanged                   // what discovery has learned may have
)

// listeners has the functions that are called after commits.
type listeners struct {
	mu       sync.RWMutex
	onCommit []func(*relay.Commit)
	on       []listener
}

// listener is a function that is called if one of the topics has changed.
type listener struct {
	topics topic
	f      func()
}

// add registers f for topics.
func (l *listeners) add(topics topic, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = append(l.on, listener{topics, f})
}

func (l *listeners) committed(c *relay.Commit) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, f := range l.onCommit {
		f(c)
	}
}

// tell calls the listeners of topics that have changed.
func (l *listeners) tell(changed topic) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, on := range l.on {
		if on.topics&changed != 0 {
			on.f()
		}
	}
}
