package engine

import (
	"log/slog"
	"sync/atomic"
	"time"

	"relay/db/internal/platform"
	"relay/db/internal/sqlite"
)

// disk compares the free space on the file's disk with Options.MinFreeDisk, once a
// second. It also logs when the disk becomes full, and when a write finds room again.
// Only the writer's goroutine uses the fields below Low.
type disk struct {
	StartedFull atomic.Bool // the writer had no room to open the file (started_full.go); no messages are accepted
	Low         atomic.Bool // free space is below the floor, or SQLite found the disk full; no messages are accepted
	Folder      string
	floor       int64 // bytes; 0 means no limit
	log         *slog.Logger
	checked     time.Time // by the real clock
	below       bool      // free space is below the floor
	fullSince   time.Time // since when writes have failed because the disk is full, or zero
	fullLast    time.Time // when the latest of them failed
	changes     int64     // Conn.Changes when the disk was found full last
}

const (
	checkDiskEvery = time.Second
	roomAfter      = 2 * time.Second
)

func (d *disk) Due(time.Time) bool { return time.Since(d.checked) >= checkDiskEvery }

func (d *disk) Do(time.Time) {
	d.checked = time.Now()
	d.Check()
}

// Check compares the free space with the floor. If the free space cannot be read, Check
// assumes room; SQLite will say when the disk is full.
func (d *disk) Check() {
	below := false
	if d.floor > 0 {
		free, err := platform.FreeDisk(d.Folder)
		below = err == nil && free < d.floor
	}
	d.Low.Store(below || d.StartedFull.Load())
	switch {
	case below && !d.below:
		d.log.Warn("less disk space is free than --min-free-disk: messages are refused, reads and acks work",
			"floor_bytes", d.floor)
	case !below && d.below:
		d.log.Info("more disk space is free than --min-free-disk again: messages are accepted", "floor_bytes", d.floor)
	}
	d.below = below
}

// becameFull notes that SQLite found no room for a transaction. Until the next check no
// messages are accepted.
func (d *disk) becameFull(c *sqlite.Conn) {
	d.Low.Store(true)
	d.changes, d.fullLast = c.Changes(), time.Now()
	if d.fullSince.IsZero() {
		d.fullSince = d.fullLast
		d.log.Warn("the disk is full: nothing can be written, reads keep working")
	}
}

// committed notes that a transaction has succeeded. If it has changed a row, there may be
// room again. On an almost full disk, a small write may succeed between others that fail.
// So committed accepts messages again only if no write has failed for a while.
func (d *disk) committed(c *sqlite.Conn) {
	if !d.fullSince.IsZero() && time.Since(d.fullLast) >= roomAfter && c.Changes() != d.changes {
		d.log.Info("there is room on the disk again", "full_seconds", int(time.Since(d.fullSince).Seconds()))
		d.fullSince = time.Time{}
	}
}
