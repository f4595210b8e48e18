package readers

import (
	"time"

	"relay/db/internal/sqlite"
	"relay/db/measure"
	"relay/db/relay"
	"relay/db/turn"
)

// The readers have three lanes, each with connections of its own, so that a read never
// waits for a longer one of another kind. Each Mecha has its own shares and bounds. A read
// beyond the bound of waiting reads is refused with RateLimited.
const (
	keyConns   = 1    // for keys and positions: reads of a few rows, for the relay itself
	PointConns = 4    // for messages, profiles and short pages: reads that cost about as much as a request
	pointShare = 3    // connections in use, so that another Mecha finds one
	pointsWait = 1024 // waiting reads
	ScanConns  = 2    // for reads of many rows, one piece in each turn
	scanShare  = 1
	ScansWait  = 64
)

// Pool has the reading connections. It is safe for concurrent use, except Open and Close.
type Pool struct{ keys, Points, Scans *Lane }

// Waits are the histograms of the reads that waited for their turn, one a lane.
type Waits struct{ Keys, Points, Scans *measure.Histogram }

// New makes a pool whose reads stop waiting once closed is closed.
func New(waits Waits, closed <-chan struct{}) *Pool {
	return &Pool{
		keys: NewLane(turn.Options{Places: keyConns, Closed: closed, Waits: waits.Keys}),
		Points: NewLane(turn.Options{Places: PointConns, Share: pointShare, Refused: errTooManyReads, Closed: closed,
			Waits: waits.Points}),
		Scans: NewLane(turn.Options{Places: ScanConns, Share: scanShare, Refused: errTooManyReads, Closed: closed,
			Waits: waits.Scans}),
	}
}

func (p *Pool) lanes() []*Lane { return []*Lane{p.Scans, p.Points, p.keys} }

func (p *Pool) Open(path string, r sqlite.Role) error {
	for _, l := range p.lanes() {
		if err := l.open(path, r); err != nil {
			return err
		}
	}
	return nil
}

// Point returns the turn of a read of a few rows, Scan the turn of a read of many rows. Both
// are for a Mecha, or for the relay itself (0).
func (p *Pool) Point(of relay.MechaNumber) Turn { return Turn{p.Points, of, pointsWait} }
func (p *Pool) Scan(of relay.MechaNumber) Turn  { return Turn{p.Scans, of, ScansWait} }

// Key returns the turn of a read on which others wait, such as the read of a key, which
// admits a request or ends the sockets of a revoked key. It does not wait for other kinds of
// reads.
func (p *Pool) Key() Turn { return Turn{p.keys, 0, AnyNumber} }

// Hold takes the connections of points and scans out of use, and waits up to timeout for
// the running reads. Further reads wait until Release, which must follow. Hold leaves the
// keys alone, so that requests are admitted or refused meanwhile. It reports whether the
// held connections are idle.
func (p *Pool) Hold(timeout time.Duration) bool {
	over := time.NewTimer(timeout)
	defer over.Stop()
	return p.Scans.Hold(over.C) && p.Points.Hold(over.C)
}

// HoldAll holds all three lanes.
func (p *Pool) HoldAll(timeout time.Duration) bool {
	over := time.NewTimer(timeout)
	defer over.Stop()
	return p.Hold(timeout) && p.keys.Hold(over.C)
}

// CloseHeld closes the connections, all of which HoldAll has found idle. The pool may be
// opened again before Release.
func (p *Pool) CloseHeld() {
	for _, l := range p.lanes() {
		l.closeIdle()
	}
}

func (p *Pool) Release() {
	for _, l := range p.lanes() {
		l.Release()
	}
}

// Close waits until all connections are idle, and closes them.
func (p *Pool) Close() {
	for _, l := range p.lanes() {
		l.Close()
	}
}

// ErrShuttingDown refuses requests while the store closes.
func ErrShuttingDown() error {
	e := relay.Errorf(relay.ShuttingDown, "the relay is shutting down")
	e.RetryAfter = time.Second
	return e
}
