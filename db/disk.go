package db

import (
	"log/slog"
	"sync/atomic"
	"time"

	"relay/db/internal/sqlite"
)

// disk is the room on the file's disk. As a servant it looks once a second.
type disk struct {
	low     atomic.Bool // below the floor, or SQLite found it full: no messages are accepted
	folder  string
	floor   int64 // bytes; 0: none
	log     *slog.Logger
	checked time.Time // by the real clock
}

const checkDiskEvery = time.Second

func (d *disk) due(time.Time) bool { return time.Since(d.checked) >= checkDiskEvery }

func (d *disk) do(time.Time) {
	d.checked = time.Now()
	d.check()
}

// check compares the free space with the floor. A file system that does not tell
// is taken to have room: SQLite will say when it has not.
func (d *disk) check() {
	low := false
	if d.floor > 0 {
		free, err := sqlite.FreeDisk(d.folder)
		low = err == nil && free < d.floor
	}
	if was := d.low.Swap(low); was != low {
		d.log.Warn("free disk floor", "refusing_messages", low, "floor_bytes", d.floor)
	}
}
