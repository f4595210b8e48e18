// Package compact rebuilds a database file without its unused pages. No other process may have
// the file meanwhile: in a served file, the server frees unused pages (db.GiveBack). The package
// knows the size of a file, how much of it is unused, and how much disk a rebuild needs.
package compact

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"relay/db/admin"
	"relay/db/file"
	"relay/db/internal/sqlite"
)

// A Result says what was done to a file.
type Result struct {
	Path    string // absolute
	Before  int64  // bytes of the file before
	After   int64  // bytes of the file after
	Free    int64  // bytes of its unused pages before
	Rebuilt bool   // the whole file was rewritten; else only unused pages were freed
	NoRoom  bool   // the file was not rebuilt, because less than Needed bytes were free on the disk
	Needed  int64  // bytes that a rebuild needs on the disk
	Took    time.Duration
}

// Measure returns a result with the size of the file at path, and of its unused pages.
func Measure(path string) (Result, error) {
	c, _, err := file.OpenReadOnly(path)
	if err != nil {
		return Result{Path: path}, err
	}
	defer c.Close()
	return measure(c, path)
}

func measure(c *sqlite.Conn, path string) (Result, error) {
	pages, err := c.Number("PRAGMA page_count")
	free, err2 := c.Number("PRAGMA freelist_count")
	size := pages * file.PageSize
	path, err3 := filepath.Abs(path)
	return Result{Path: path, Before: size, After: size, Free: free * file.PageSize, Needed: 2 * size},
		errors.Join(err, err2, err3)
}

// Rebuild rebuilds the file at path, which no other relay process may have, if the disk has room for
// two more copies. schema is the text of schema.sql. If ctx ends, the file is unchanged. Errors name
// the path: admin.ErrServed, if a server has the file; admin.ErrInUse, if another process has it for
// ten seconds.
func Rebuild(ctx context.Context, path, schema string) (r Result, err error) {
	began := time.Now()
	if path, err = filepath.Abs(path); err != nil {
		return r, err
	}
	if err := file.MustExist(path); err != nil {
		return r, err
	}
	if err := file.MustBeRelays(path); err != nil { // before its lock is made
		return r, err
	}
	held, server, err := admin.Take(path, false)
	if server != nil {
		server.Close()
		err = fmt.Errorf("%s %w", path, admin.ErrServed)
	}
	if err != nil {
		return r, err
	}
	defer held.Close()
	c, err := file.OpenCurrent(path, schema)
	if err != nil {
		return r, err
	}
	defer c.Close()
	if err := mustFollowNoLog(c, path); err != nil {
		return r, err
	}
	if r, err = measure(c, path); err != nil {
		return r, file.Explain(path, err)
	}
	if room, err := file.FreeDisk(filepath.Dir(path)); err == nil && room < r.Needed {
		r.NoRoom = true
		return r, nil
	}
	c.Ctx = ctx
	if err := rebuild(c, path); err != nil {
		return r, file.Explain(path, err)
	}
	r.Rebuilt = true
	pages, err := c.Number("PRAGMA page_count")
	r.After, r.Took = pages*file.PageSize, time.Since(began)
	return r, file.Explain(path, err)
}

// mustFollowNoLog refuses a file that follows a log. Only this copy would have the
// changes of another process.
func mustFollowNoLog(c *sqlite.Conn, path string) error {
	_, follows, err := file.ReadReplica(c)
	if err == nil && follows {
		err = file.FollowsLog(path)
	}
	return err
}

// rebuild rewrites the whole file, in one transaction of SQLite.
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
		_, err = c.Checkpoint() // this makes the file shorter
	}
	return err
}
