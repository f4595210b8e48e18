package db

import (
	"context"
	"sync"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// rx is a read transaction: a consistent view of the file at one time.
type rx struct {
	c *sqlite.Conn
	*lookups
	now     time.Time // messages whose time is over by then count as expired
	writing bool      // within a transaction that may be rolled back
}

// lookups are what a reader of a file needs beside its connection. They are
// shared by all readers of a file in this process.
type lookups struct {
	ids    *relay.IDs
	words  *names[string]
	mechas *names[relay.Address]
	late   *lateIndex
}

func newLookups() *lookups {
	return &lookups{words: newWords(), mechas: newMechas(), late: &lateIndex{}}
}

// readingConns is how many connections read beside the writer.
const readingConns = 4

// readerPool has the reading connections that are idle.
type readerPool struct {
	idle   chan *sqlite.Conn
	opened int
}

func newReaderPool() *readerPool { return &readerPool{idle: make(chan *sqlite.Conn, readingConns)} }

func (p *readerPool) open(path string) error {
	for range readingConns {
		c, err := sqlite.Open(path, sqlite.Reading)
		if err != nil {
			return err
		}
		p.give(c)
		p.opened++
	}
	return nil
}

// take waits for an idle connection, for as long as ctx and the store last.
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

// hold takes the connections out of use, as many as come back within timeout. A
// read that is under way ends first; those that follow wait until release.
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

// close waits for the connections that are at work, and closes all.
func (p *readerPool) close() {
	for ; p.opened > 0; p.opened-- {
		(<-p.idle).Close()
	}
}

// listeners are those who want to know of what has been committed.
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
