package file

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"relay/db/internal/platform"
	"relay/db/internal/sqlite"
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

// PageSize is the size of a page, in bytes.
const PageSize = 4096

// Measure returns a result with the size of the file at path, and of its unused pages.
func Measure(path string) (CompactResult, error) {
	c, _, err := OpenReadOnly(path)
	if err != nil {
		return CompactResult{Path: path}, err
	}
	defer c.Close()
	return measure(c, path)
}

func measure(c *sqlite.Conn, path string) (CompactResult, error) {
	pages, err := c.Number("PRAGMA page_count")
	free, err2 := c.Number("PRAGMA freelist_count")
	size := pages * PageSize
	path, err3 := filepath.Abs(path)
	return CompactResult{Path: path, Before: size, After: size, Free: free * PageSize, Needed: 2 * size},
		errors.Join(err, err2, err3)
}

// Compact rebuilds a file that no other process of the relay has, if the disk has room for two
// more of it. If ctx ends, the file stays as it is. Errors name the path: lock.ErrHeld, if a
// process has the file.
func Compact(ctx context.Context, o CompactOptions) (r CompactResult, err error) {
	began := time.Now()
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return r, err
	}
	if err := MustExist(path); err != nil {
		return r, err
	}
	if err := MustBeRelays(path); err != nil { // before a lock is made beside it
		return r, err
	}
	held, err := Lock(path)
	if err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	defer held.Close()
	c, err := OpenCurrent(path, o.Schema)
	if err != nil {
		return r, err
	}
	defer c.Close()
	if err := MustFollowNoLog(c, path); err != nil {
		return r, err
	}
	if r, err = measure(c, path); err != nil {
		return r, Explain(path, err)
	}
	if room, err := platform.FreeDisk(filepath.Dir(path)); err == nil && room < r.Needed {
		r.NoRoom = true
		return r, nil
	}
	c.Ctx = ctx
	if err := rebuild(c, path); err != nil {
		return r, Explain(path, err)
	}
	r.Rebuilt = true
	pages, err := c.Number("PRAGMA page_count")
	r.After, r.Took = pages*PageSize, time.Since(began)
	return r, Explain(path, err)
}

// rebuild writes the whole file anew, in one transaction that SQLite makes.
func rebuild(c *sqlite.Conn, path string) error {
	// Connections keep temporary data in memory. A rebuild needs as much as the file.
	if err := c.Script("PRAGMA temp_store = FILE"); err != nil {
		return err
	}
	r := c.Query("VACUUM") // as a query, so that ctx interrupts it
	r.Next()
	err := r.Close()
	switch {
	case sqlite.IsDiskFull(err):
		return fmt.Errorf("the disk filled up while %s was rebuilt; it is as it was: make room: %w", path, err)
	case sqlite.IsBusy(err):
		return fmt.Errorf("another command has %s open: try again when it has ended", path)
	case err == nil:
		_, err = c.Checkpoint() // only then the file gets shorter
	}
	return err
}
