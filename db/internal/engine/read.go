package engine

import (
	"context"
	"sync"
	"time"

	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Rx is a transaction that reads a consistent snapshot of the file.
type Rx struct {
	C *sqlite.Conn
	*names.Caches
	Now time.Time // messages whose ExpiresAt is not later count as expired
	// The texts that a Tx has read by their numbers, for the caches; nil in a read transaction.
	FoundWords  map[int64]string
	FoundMechas map[int64]relay.Address
}

// A Viewer reads the file for somebody. Each call runs its function in a transaction of its own,
// which reads a consistent snapshot. A DB has one for each Mecha (Store.As); an Inspector is
// one.
type Viewer interface {
	Point(context.Context, func(*Rx) error) error // for a read of a few rows
	Scan(context.Context, func(*Rx) error) error  // for a piece of a read of many rows
}

// Get runs a read that has a result. in is a method of a Viewer.
func Get[T any](
	ctx context.Context, in func(context.Context, func(*Rx) error) error, read func(*Rx) (T, error),
) (v T, err error) {
	err = in(ctx, func(x *Rx) error {
		v, err = read(x)
		return err
	})
	return v, err
}

// Topic is a set of bits: what may have changed for the listeners.
type Topic uint8

const (
	KeysChanged    Topic = 1 << iota // a key may have been revoked or changed
	EntriesChanged                   // a Mecha or a profile may have changed
	LearnedChanged                   // learned words may have changed
)

// listeners has the functions that are called after commits.
type listeners struct {
	Mu       sync.RWMutex
	OnCommit []func(*relay.Commit)
	on       []listener
}

// listener is a function that is called if one of the topics has changed.
type listener struct {
	topics Topic
	f      func()
}

// Add registers f for topics.
func (l *listeners) Add(topics Topic, f func()) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.on = append(l.on, listener{topics, f})
}

func (l *listeners) committed(c *relay.Commit) {
	l.Mu.RLock()
	defer l.Mu.RUnlock()
	for _, f := range l.OnCommit {
		f(c)
	}
}

// notify calls the listeners of topics that have changed.
func (l *listeners) notify(changed Topic) {
	l.Mu.RLock()
	defer l.Mu.RUnlock()
	for _, on := range l.on {
		if on.topics&changed != 0 {
			on.f()
		}
	}
}

// Word returns the string of a number, and Address the address of a Mecha's number; both return "" for 0.
func Word(x *Rx, id int64) (string, error) { return x.Words.Lookup(x.C, id, x.FoundWords) }
func Address(x *Rx, id int64) (relay.Address, error) {
	return x.Mechas.Lookup(x.C, id, x.FoundMechas)
}
