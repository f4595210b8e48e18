// Package turn shares out scarce places: for work that is done (Stile), and for work that
// waits (Queue). The owners of the work take turns, however much each of them wants, so an
// owner with one wish waits for at most one turn of each other owner. An owner can take
// only a share. The error for an owner's own excess differs from the error for others'
// (Refused).
//
// The zero value of an owner's type is the house. It takes its turn like any owner, but may
// take all places.
//
// The package knows nothing of the relay: its users name the owners and make the errors.
package turn

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"relay/db/measure"
)

// Unbounded is a number of places, or of waiting turns, that has no bound.
const Unbounded = math.MaxInt

// ErrClosed is the error of waiting turns when Options.Closed is closed.
var ErrClosed = errors.New("no further turn begins")

// A Refused makes the error of a refusal. own is how many places the owner itself has; 0 if
// others have them all.
type Refused func(own int) error

// Options bound the turns of a Stile.
type Options struct {
	Places   int                // turns at a time; or Unbounded
	Share    int                // of these, turns of one owner
	Patience time.Duration      // how long a turn may wait; 0 means without limit
	Refused  Refused            // nil if nobody is refused
	Closed   <-chan struct{}    // ends all waits when it is closed; may be nil
	Waits    *measure.Histogram // wait times of turns that could not begin at once; may be nil
}

// A Stile is a turnstile: it bounds how many turns run at a time, in all and of one owner.
// When no place is free, the owners that wait take turns. Make it with NewStile. It is safe
// for concurrent use.
type Stile[O comparable] struct {
	Options

	mu     sync.Mutex
	taken  int           // places
	owners map[O]owner   // those that have places, or wait
	ring   []O           // those that wait, and have less than their share, in the order of their turns
	held   chan struct{} // closed once no place is taken; nil unless Hold was called
}

type owner struct {
	taken   int
	waiting []chan struct{} // the oldest first; each is closed when its turn begins
	inRing  bool
}

// NewStile returns a turnstile with all places free.
func NewStile[O comparable](o Options) *Stile[O] {
	return &Stile[O]{Options: o, owners: map[O]owner{}}
}

// Take waits until a turn of an owner begins. Up to line turns of the owner may wait. After
// nil, Give must follow. Errors: the error of Refused, if more turns wait or Patience ends;
// ErrClosed; the error of ctx.
func (s *Stile[O]) Take(ctx context.Context, of O, line int) error {
	turn, err := s.begin(of, line)
	if turn == nil {
		return err
	}
	began := time.Now()
	defer func() { s.Waits.Observe(time.Since(began)) }()
	var over <-chan time.Time
	if s.Patience > 0 {
		timer := time.NewTimer(s.Patience)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-turn:
		return nil
	case <-over:
	case <-s.Closed:
		err = ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	return s.leave(of, turn, err)
}

// begin takes a place. If none is free for the owner, begin returns a channel, which is
// closed when the turn begins.
func (s *Stile[O]) begin(of O, line int) (turn chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[of]
	switch n := len(o.waiting); {
	case s.isFree() && s.mayTake(of, o): // no one is skipped: while a place is free, the ring is empty
		s.taken, o.taken = s.taken+1, o.taken+1
	case n >= line:
		return nil, s.Refused(n)
	default:
		turn = make(chan struct{})
		o.waiting = append(o.waiting, turn)
	}
	s.put(of, o)
	return turn, nil
}

func (s *Stile[O]) isFree() bool { return s.held == nil && s.taken < s.Places }

func (s *Stile[O]) mayTake(of O, o owner) bool {
	var house O
	return o.taken < s.Share || of == house
}

// put stores the state of an owner, and puts the owner at the end of the ring if it is to
// be there. The caller must hold s.mu.
func (s *Stile[O]) put(of O, o owner) {
	if len(o.waiting) > 0 && !o.inRing && s.mayTake(of, o) {
		o.inRing, s.ring = true, append(s.ring, of)
	}
	if o.taken == 0 && len(o.waiting) == 0 && !o.inRing {
		delete(s.owners, of)
		return
	}
	s.owners[of] = o
}

// next begins turns as long as places are free. The caller must hold s.mu.
func (s *Stile[O]) next() {
	for len(s.ring) > 0 && s.isFree() {
		of := s.ring[0]
		s.ring = s.ring[1:]
		o := s.owners[of]
		o.inRing = false
		if len(o.waiting) > 0 { // or all have left
			close(o.waiting[0])
			o.waiting = o.waiting[1:]
			s.taken, o.taken = s.taken+1, o.taken+1
		}
		s.put(of, o)
	}
}

// leave stops waiting for a turn, and returns err, or the error of Refused if err is nil.
// It returns nil if the turn has just begun.
func (s *Stile[O]) leave(of O, turn chan struct{}, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[of]
	i := slices.Index(o.waiting, turn)
	if i < 0 {
		return nil
	}
	o.waiting = slices.Delete(o.waiting, i, i+1)
	s.put(of, o)
	if err == nil {
		err = s.Refused(i + o.taken)
	}
	return err
}

// Give ends a turn.
func (s *Stile[O]) Give(of O) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[of]
	s.taken, o.taken = s.taken-1, o.taken-1
	s.put(of, o)
	if s.held != nil && s.taken == 0 {
		close(s.held)
	}
	s.next()
}

// Waiting returns how many turns of an owner wait.
func (s *Stile[O]) Waiting(of O) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.owners[of].waiting)
}

// Hold keeps further turns from beginning until Release, and waits until none is running.
// It returns false if over fires first. Only one goroutine at a time may hold a Stile.
func (s *Stile[O]) Hold(over <-chan time.Time) bool {
	held := make(chan struct{})
	s.mu.Lock()
	if s.held = held; s.taken == 0 {
		close(held)
	}
	s.mu.Unlock()
	select {
	case <-held:
		return true
	case <-over:
		return false
	}
}

// Release ends what Hold began.
func (s *Stile[O]) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = nil
	s.next()
}
