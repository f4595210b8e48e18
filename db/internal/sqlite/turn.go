package sqlite

import "sync"

// locking is held for reading by each write transaction and each checkpoint of this
// process. They lock the file against other processes, so the process must not be
// stopped in the middle of one.
var locking sync.RWMutex

// WithoutLocks runs f while this process has no write transaction and no checkpoint under
// way. It waits for the end of those, and lets no other begin before f returns. f must not
// write. Safe for concurrent use.
func WithoutLocks(f func()) {
	locking.Lock()
	defer locking.Unlock()
	f()
}

// lock notes that the connection locks the file, and unlock that it no longer does.
func (c *Conn) lock() {
	locking.RLock()
	c.locks = true
}

func (c *Conn) unlock() {
	if c.locks {
		c.locks = false
		locking.RUnlock()
	}
}
