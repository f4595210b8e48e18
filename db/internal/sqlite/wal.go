package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
)

// LogSize returns the bytes of the log of the database at path, or 0.
func LogSize(path string) int64 {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return 0
	}
	info, err := os.Stat(real + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}

// NotCopied returns how many pages of the log have not been copied into the database, or
// 0 after an error. It changes nothing and takes about two microseconds.
func (c *Conn) NotCopied() (pages int64) {
	_, _ = c.Row(func(r *Rows) { pages = r.Int(1) - r.Int(2) }, "PRAGMA wal_checkpoint(NOOP)")
	return pages
}

// Checkpoint copies as much of the log into the database as readers allow, without
// waiting for them. It returns how many pages the log has.
func (c *Conn) Checkpoint() (frames int64, err error) {
	c.lock()
	defer c.unlock()
	_, err = c.Row(func(r *Rows) { frames = r.Int(1) }, "PRAGMA wal_checkpoint(PASSIVE)")
	return frames, err
}

// CopyLog copies the log into the database and empties it. If another process reads or
// writes, CopyLog does not wait for it: held says that a part of the log may not be copied,
// and not be synced either.
func (c *Conn) CopyLog() (held bool, err error) {
	c.lock()
	defer c.unlock()
	wait, err := c.Number("PRAGMA busy_timeout")
	if err != nil {
		return false, err
	}
	if _, err := c.Row(nil, "PRAGMA busy_timeout = 0"); err != nil {
		return false, err
	}
	_, err = c.Row(func(r *Rows) { held = r.Int(0) != 0 }, "PRAGMA wal_checkpoint(TRUNCATE)")
	_, again := c.Row(nil, "PRAGMA busy_timeout = "+strconv.FormatInt(wait, 10))
	return held, errors.Join(err, again)
}

// Changes counts the rows that the connection has changed since it was opened, including
// the rows of failed transactions; 0 after an error.
func (c *Conn) Changes() (rows int64) {
	rows, _ = c.Number("SELECT total_changes()")
	return rows
}
