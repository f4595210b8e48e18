package file

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"relay/db/internal/sqlite"
)

// CompactOptions says which file to make smaller. Path and Schema are required.
type CompactOptions struct {
	Path     string
	Schema   string   // the text of schema.sql
	Progress Progress // may be nil
}

// CompactResult says what came of it.
type CompactResult struct {
	Path    string // absolute
	Before  int64  // bytes of the file
	After   int64
	Free    int64 // bytes in pages that were unused before
	Rebuilt bool  // all of it was written anew; else only unused pages were given back
	// NoRoom: it was not rebuilt for want of disk, of which Needed bytes must be free.
	NoRoom bool
	Needed int64
	Took   time.Duration
}

// Compact gives the space that a file does not use back to the file system.
// While a server runs on it, unused pages are given back a few at a time, so
// that a write waits for some milliseconds at most. Else the file is
// rebuilt, if the disk has room for two more of it, and takes up what it needs
// and no more. The end of ctx ends it; what was given back stays so.
func Compact(ctx context.Context, o CompactOptions) (result CompactResult, err error) {
	began := time.Now()
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return result, err
	}
	if err := MustExist(path); err != nil {
		return result, err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return result, err
	}
	if info, err := infoAt(path); err != nil {
		return result, unreadable(path, err)
	} else if err := info.mustBeRelays(path); err != nil {
		return result, err
	}
	lock, err := sqlite.LockFile(real + ".lock")
	served := errors.Is(err, sqlite.ErrLocked)
	if err != nil && !served {
		return result, err
	}
	if lock != nil {
		defer lock.Close()
	}
	c, err := OpenCurrent(path, o.Schema, !served)
	if err != nil {
		return result, err
	}
	defer c.Close()
	c.Ctx = ctx
	k := &compactor{conn: c, ctx: ctx, path: path, progress: o.Progress}
	result, err = k.compact(served)
	result.Path, result.Took = path, time.Since(began)
	return result, err
}

type compactor struct {
	conn     *sqlite.Conn
	ctx      context.Context
	path     string
	progress Progress
	page     int64 // bytes
}

func (k *compactor) compact(served bool) (r CompactResult, err error) {
	var before, free int64
	for query, to := range map[string]*int64{"PRAGMA page_size": &k.page, "PRAGMA page_count": &before, "PRAGMA freelist_count": &free} {
		if *to, err = k.conn.Number(query); err != nil {
			return r, err
		}
	}
	r.Before, r.Free, r.Needed = before*k.page, free*k.page, 2*before*k.page
	if !served {
		room, err := sqlite.FreeDisk(filepath.Dir(k.path))
		if r.NoRoom = err == nil && room < r.Needed; !r.NoRoom {
			r.Rebuilt = true
			if err := k.rebuild(); err != nil {
				return r, err
			}
		}
	}
	if !r.Rebuilt {
		if err := k.giveBack(free); err != nil {
			return r, err
		}
	}
	if err := k.checkpoint(); err != nil {
		return r, err
	}
	after, err := k.conn.Number("PRAGMA page_count")
	r.After = after * k.page
	return r, err
}

// rebuild writes the whole file anew, in one transaction of SQLite's own.
func (k *compactor) rebuild() error {
	// Not in memory, where it would be by the settings of other connections.
	if err := k.conn.Script("PRAGMA temp_store = FILE"); err != nil {
		return err
	}
	r := k.conn.Query("VACUUM") // a query: ctx interrupts it
	r.Next()
	err := r.Close()
	if sqlite.IsDiskFull(err) {
		return fmt.Errorf("the disk filled up while %s was rebuilt; it is as it was: make room: %w", k.path, err)
	}
	if sqlite.IsBusy(err) {
		return fmt.Errorf("another command has %s open: try again when it has ended", k.path)
	}
	return err
}

const (
	leastSlice   = 32
	mostSlice    = 4096
	sliceTime    = 2 * time.Millisecond // for which a slice may hold up writers
	slicesPerLog = 32                   // slices between two checkpoints
)

// giveBack cuts unused pages off the end of the file, after moving used ones
// to where unused ones were. Each slice is a transaction; it takes as many
// pages as the last one showed to fit into sliceTime, and then leaves the file
// to others for longer than that.
func (k *compactor) giveBack(free int64) error {
	slice := int64(leastSlice)
	for n := 1; ; n++ {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		cut, left, took, err := k.slice(slice)
		if sqlite.IsBusy(err) {
			return fmt.Errorf("%s is locked by another command: try again when it has ended", k.path)
		}
		if err != nil || cut == 0 || left == 0 {
			return err
		}
		if k.progress != nil {
			k.progress("compacting", max(free-left, 0), free)
		}
		switch {
		case took > sliceTime:
			slice = max(slice/2, leastSlice)
		case took < sliceTime/2:
			slice = min(slice*2, mostSlice)
		}
		if n%slicesPerLog == 0 {
			if err := k.checkpoint(); err != nil {
				return err
			}
		}
		time.Sleep(3 * took) // most of the time is others'
	}
}

// slice gives back some pages in a transaction of its own. It tells by how many
// the file got shorter, how many unused ones are left, and how long that took
// before the commit.
func (k *compactor) slice(pages int64) (cut, left int64, took time.Duration, err error) {
	if err := k.conn.BeginWrite(); err != nil {
		return 0, 0, 0, err
	}
	began := time.Now()
	before, err := k.conn.Number("PRAGMA page_count")
	if err == nil {
		r := k.conn.Query(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", pages))
		for r.Next() { // a row a page
		}
		err = r.Close()
	}
	after := before
	if err == nil {
		after, err = k.conn.Number("PRAGMA page_count")
	}
	if err == nil {
		left, err = k.conn.Number("PRAGMA freelist_count")
	}
	took = time.Since(began) // without the commit: its fsync takes as long for fewer pages
	if err == nil {
		err = k.conn.Commit()
	}
	if err != nil {
		k.conn.Rollback()
	}
	return before - after, left, took, err
}

// checkpoint copies the log into the file, as far as readers allow: only then the
// file gets shorter.
func (k *compactor) checkpoint() error {
	_, err := k.conn.Checkpoint()
	return err
}
