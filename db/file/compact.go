package file

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/lock"
)

// CompactOptions says which file to make smaller. Path and Schema are required.
type CompactOptions struct {
	Path     string
	Schema   string   // the text of schema.sql
	Progress Progress // may be nil
}

// CompactResult says what a Compact has done.
type CompactResult struct {
	Path    string // absolute
	Before  int64  // bytes of the file before
	After   int64  // bytes of the file after
	Free    int64  // bytes of its unused pages before
	Rebuilt bool   // the whole file was written anew; else only unused pages were given back
	NoRoom  bool   // the file was not rebuilt, because less than Needed bytes were free on the disk
	Needed  int64  // bytes that a rebuild needs on the disk
	Took    time.Duration
}

// Compact gives the unused space of a file back to the file system. While a server
// runs on the file, Compact gives back a few unused pages at a time, so that a write
// waits for some milliseconds at most. Without a server it rebuilds the file, if the
// disk has room for two more of it. If ctx ends, Compact stops; pages given back until
// then stay so. Errors name the path.
func Compact(ctx context.Context, o CompactOptions) (result CompactResult, err error) {
	began := time.Now()
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return result, err
	}
	if err := MustExist(path); err != nil {
		return result, err
	}
	if info, err := infoAt(path); err != nil {
		return result, unreadable(path, err)
	} else if err := info.mustBeRelays(path); err != nil {
		return result, err
	}
	held, err := Lock(path)
	served := errors.Is(err, lock.ErrHeld)
	if err != nil && !served {
		return result, err
	}
	if held != nil {
		defer held.Close()
	}
	c, err := OpenCurrent(path, o.Schema, !served)
	if err != nil {
		return result, err
	}
	defer c.Close()
	if err := MustFollowNoLog(c, path); err != nil {
		return result, err
	}
	c.Ctx = ctx
	k := &compactor{conn: c, ctx: ctx, path: path, progress: o.Progress}
	result, err = k.compact(served)
	result.Path, result.Took = path, time.Since(began)
	return result, Explain(path, err)
}

// compactor is a Compact under way.
type compactor struct {
	conn     *sqlite.Conn
	ctx      context.Context
	path     string
	progress Progress
	page     int64 // bytes of a page
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

// rebuild writes the whole file anew, in one transaction that SQLite makes.
func (k *compactor) rebuild() error {
	// Connections keep temporary data in memory. A rebuild needs as much as the file.
	if err := k.conn.Script("PRAGMA temp_store = FILE"); err != nil {
		return err
	}
	r := k.conn.Query("VACUUM") // as a query, so that ctx interrupts it
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
	leastSlice   = 32                   // pages
	mostSlice    = 4096                 // pages
	sliceTime    = 2 * time.Millisecond // the time for which a slice may hold up writers
	slicesPerLog = 32                   // slices between two checkpoints
)

// giveBack moves used pages to the place of unused ones and cuts the unused pages off
// the end of the file. It works in slices of one transaction each. The number of pages
// in a slice follows from the time of the last one, to stay near sliceTime. After each
// slice, it leaves the file to others for three times as long.
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
		time.Sleep(3 * took) // so that others have the file most of the time
	}
}

// slice gives back some pages in one transaction. It returns by how many pages the
// file got shorter, how many unused pages are left, and the time before the commit.
func (k *compactor) slice(pages int64) (cut, left int64, took time.Duration, err error) {
	if err := k.conn.BeginWrite(); err != nil {
		return 0, 0, 0, err
	}
	began := time.Now()
	before, err := k.conn.Number("PRAGMA page_count")
	if err == nil {
		r := k.conn.Query(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", pages))
		for r.Next() { // one row for each page
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
	took = time.Since(began) // without the commit, since its fsync takes as long for fewer pages
	if err == nil {
		err = k.conn.Commit()
	}
	if err != nil {
		k.conn.Rollback()
	}
	return before - after, left, took, err
}

// checkpoint copies the log into the file, as far as readers allow. Only then the file
// gets shorter.
func (k *compactor) checkpoint() error {
	_, err := k.conn.Checkpoint()
	return err
}
