package db

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"relay/db/file"
	"relay/db/internal/sqlite"
)

// inspectConns is how many reads of an Inspector go on at a time.
const inspectConns = 4

var errInspectorClosed = errors.New("the inspector is closed")

// An inspectPool has the connections of an Inspector. It opens another one when all are in
// use, up to inspectConns; then a read waits. All are to the file that was at the path when
// the first one was opened. It is safe for concurrent use, except begin.
type inspectPool struct {
	path  string
	file  os.FileInfo
	slots chan struct{} // has an element for each connection in use

	mu     sync.Mutex
	idle   []*sqlite.Conn
	closed bool
}

// begin opens the first connection, which give puts into the pool. Errors: those of Inspect.
func (p *inspectPool) begin(path string) (*sqlite.Conn, error) {
	p.path, p.slots = path, make(chan struct{}, inspectConns)
	c, info, err := file.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	if err := info.MustBeCurrent(path); err != nil {
		c.Close()
		return nil, err
	}
	if p.file, err = os.Stat(path); err != nil {
		c.Close()
		return nil, err
	}
	p.slots <- struct{}{}
	return c, nil
}

// open opens a connection that is not of the pool. The caller closes it.
func (p *inspectPool) open() (*sqlite.Conn, error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, errInspectorClosed
	}
	c, _, err := file.OpenReadOnly(p.path)
	if err != nil {
		return nil, err
	}
	now, err := os.Stat(p.path)
	if err == nil && !os.SameFile(now, p.file) {
		err = fmt.Errorf("%s was replaced by another file", p.path)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// take gives a connection, and waits for one if all are in use. give must follow.
func (p *inspectPool) take() (c *sqlite.Conn, err error) {
	p.slots <- struct{}{}
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	if c == nil {
		c, err = p.open()
	}
	if err != nil {
		<-p.slots
	}
	return c, err
}

func (p *inspectPool) give(c *sqlite.Conn) {
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	<-p.slots
}

// close waits until no connection is in use, and closes all.
func (p *inspectPool) close() (err error) {
	for range inspectConns {
		p.slots <- struct{}{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range slices.Backward(p.idle) {
		err = errors.Join(err, c.Close())
	}
	p.idle, p.closed = nil, true
	for range inspectConns {
		<-p.slots
	}
	return err
}
