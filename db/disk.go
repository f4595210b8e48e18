package db

import (
	"errors"
	"path/filepath"
)

var errLocked = errors.New("locked by another process")

// checkDisk compares the free space with the floor. A file system that does
// not tell is taken to have room: SQLite will say when it has not.
func (d *DB) checkDisk() {
	low := false
	if d.opts.MinFreeDisk > 0 {
		free, err := freeDisk(filepath.Dir(d.path))
		low = err == nil && free < d.opts.MinFreeDisk
	}
	if was := d.diskLow.Swap(low); was != low {
		d.opts.Logger.Warn("free disk floor", "refusing_messages", low, "floor_bytes", d.opts.MinFreeDisk)
	}
}
