package db

import (
	"context"
	"sync"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// rx is a transaction that reads one state of the file.
type rx struct {
	c *sqlite.Conn
	*lookups
	now     time.Time // messages whose ExpiresAt is not later count as expired
	writing bool      // part of a tx, which may be rolled back
}

// lookups are the ids, caches and the late index of a file. All who read a file in
// this process share them.
type lookups struct {
	ids    *relay.IDs
	words  *names[string]
	mechas *names[relay.Address]
	late   *lateIndex
}

func newLookups() *lookups {
	return &lookups{words: newWords(), mechas: newMechas(), late: &lateIndex{}}
}

// readingConns is how many connections read beside the writer's.
const readingConns = 4

// readerPool has the reading connections. It is safe for concurrent use, except open
// and close.
type readerPool struct {
	idle   chan *sqlite.Conn
	opened int
}

func newReaderPool() *readerPool { return &readerPool{idle: make(chan *sqlite.Conn, readingConns)} }

func (p *readerPool) open(path string, r sqlite.Role) error {
	for range readingConns {
		c, err := sqlite.Open(path, r)
		if err != nil {
			return err
		}
		p.give(c)
		p.opened++
	}
	return nil
}

// take waits for an idle connection, until ctx ends or the store closes.
func (p *readerPool) take(ctx context.Context, closed <-chan struct{}) (*sqlite.Conn, error) {
	select {
	case c := <-p.idle:
		return c, nil
	case <-closed:
		return nil, errShuttingDown()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *readerPool) give(c *sqlite.Conn) { p.idle <- c }

// hold takes the connections out of use, as many as become idle within timeout. Reads
// that are under way end first; further reads wait until release.
func (p *readerPool) hold(timeout time.Duration) (held []*sqlite.Conn) {
	over := time.NewTimer(timeout)
	defer over.Stop()
	for range readingConns {
		select {
		case c := <-p.idle:
			held = append(held, c)
		case <-over.C:
			return held
		}
	}
	return held
}

func (p *readerPool) release(held []*sqlite.Conn) {
	for _, c := range held {
		p.give(c)
	}
}

// close waits until all connections are idle, and closes them.
func (p *readerPool) close() {
	for ; p.opened > 0; p.opened-- {
		(<-p.idle).Close()
	}
}

// listeners has the functions that are called after commits.
type listeners struct {
	mu        sync.RWMutex
	onCommit  []func(*relay.Commit)
	onKeys    []func()
	onEntries []func()
}

func (l *listeners) add(f func(*listeners)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (l *listeners) committed(c *relay.Commit) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, f := range l.onCommit {
		f(c)
	}
}

func (l *listeners) keysChanged() {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, f := range l.onKeys {
		f()
	}
}

func (l *listeners) entriesChanged() {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, f := range l.onEntries {
		f()
	}
}
