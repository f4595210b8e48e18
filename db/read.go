package db

import (
	"context"
	"sync"
	"time"

	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// rx is a transaction that reads one state of the file.
type rx struct {
	c *sqlite.Conn
	*names.Lookups
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

// word gives the word of a number, address the address of a Mecha's number; "" for 0.
func word(x *rx, id int64) (string, error) { return x.Words.Lookup(x.c, id, x.foundWords) }
func address(x *rx, id int64) (relay.Address, error) {
	return x.Mechas.Lookup(x.c, id, x.foundMechas)
}
