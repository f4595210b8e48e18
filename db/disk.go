package db

import (
	"log/slog"
	"sync/atomic"
	"time"

	"relay/db/internal/sqlite"
)

// disk is the servant that compares the free space on the file's disk with
// Options.MinFreeDisk, once a second.
type disk struct {
	full    atomic.Bool // the writer could not open the file for want of room; no messages are accepted
	low     atomic.Bool // free space is below the floor, or SQLite found the disk full; no messages are accepted
	folder  string
	floor   int64 // bytes; 0: no limit
	log     *slog.Logger
	checked time.Time // by the real clock
}

const checkDiskEvery = time.Second

func (d *disk) due(time.Time) bool { return time.Since(d.checked) >= checkDiskEvery }

func (d *disk) do(time.Time) {
	d.checked = time.Now()
	d.check()
}

// check compares the free space with the floor. If the file system does not tell its
// free space, check assumes room; SQLite will say when the disk is full.
func (d *disk) check() {
	low := d.full.Load()
	if d.floor > 0 {
		free, err := sqlite.FreeDisk(d.folder)
		low = low || err == nil && free < d.floor
	}
	if was := d.low.Swap(low); was != low && !d.full.Load() {
		d.log.Warn("free disk space crossed the floor", "refusing_messages", low, "floor_bytes", d.floor)
	}
}
