package file

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"relay/db/internal/platform"
	"relay/db/internal/sqlite"
)

// copySlice is how many pages are copied before ctx is checked again: about 2 MiB.
const copySlice = 256

// copyPages copies a consistent snapshot of a database into an empty file. The copy is
// not in WAL mode, so it is a single file that can be read without making others.
//
// SQLite's backup starts again whenever another connection commits between two slices,
// unless the reading connection is inside a transaction. Inside one, it reads a
// consistent snapshot, and slices may be small. VACUUM INTO would make a denser file, but
// takes some three times as long, and the log of a served file grows for that time. relay
// compact makes a dense file.
func copyPages(ctx context.Context, from, to string, o BackupOptions) (result BackupResult, err error) {
	s, err := OpenSnapshot(ctx, from)
	if err != nil {
		return result, sourceError{err}
	}
	defer s.Close()
	if err := s.checkRoom(filepath.Dir(to)); err != nil {
		return result, err
	}
	if result, err = s.count(); err != nil {
		return result, sourceError{unreadable(from, err)}
	}
	b, err := s.Conn.CopyTo(to)
	if err != nil {
		return result, fmt.Errorf("%s: %w", to, err)
	}
	for more := true; more && err == nil; {
		if err = ctx.Err(); err != nil {
			break
		}
		began := time.Now()
		more, err = b.Step(copySlice)
		if total := int64(b.PageCount()); o.Progress != nil && total > 0 {
			o.Progress("copying", total-int64(b.Remaining()), total)
		}
		if o.Between != nil && more {
			o.Between(time.Since(began))
		}
	}
	if err != nil {
		b.Finish()
		return result, copyFault(from, to, err)
	}
	if err := b.Finish(); err != nil {
		return result, copyFault(from, to, err)
	}
	return result, withoutLog(to)
}

func copyFault(from, to string, err error) error {
	switch {
	case sqlite.IsDiskFull(err):
		return fmt.Errorf("the disk of %s is full: make room, or choose another place: %w", filepath.Dir(to), err)
	case sqlite.IsFatal(err):
		return sourceError{unreadable(from, err)}
	}
	return err
}

// withoutLog switches WAL off in a copy, which got that mode from its source. No
// other process may have the file open.
func withoutLog(path string) error {
	c, err := sqlite.Open(path, sqlite.Receiving)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	mode := ""
	_, err = c.Row(func(r *sqlite.Rows) { mode = r.Text(0) }, "PRAGMA journal_mode = DELETE")
	if closed := c.Close(); err == nil {
		err = closed
	}
	if err == nil && mode != "delete" {
		err = fmt.Errorf("journal mode %s", mode)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Size returns the bytes of a copy: the pages of the file and of its log.
func (s *Snapshot) Size() (int64, error) {
	pages, err := s.Conn.Number("PRAGMA page_count")
	if err != nil {
		return 0, err
	}
	page, err := s.Conn.Number("PRAGMA page_size")
	return pages * page, err
}

// checkRoom refuses a copy for which the disk of dir has no room.
func (s *Snapshot) checkRoom(dir string) error {
	size, err := s.Size()
	if err != nil {
		return unreadable(s.Path, err)
	}
	if free, err := platform.FreeDisk(dir); err == nil && free < size {
		return fmt.Errorf("the copy needs %.1f MiB, and %s has %.1f MiB free: make room, or choose another place",
			float64(size)/(1<<20), dir, float64(free)/(1<<20))
	}
	return nil
}

func (s *Snapshot) count() (result BackupResult, err error) {
	if result.Messages, err = s.Conn.Number("SELECT count(*) FROM message"); err != nil {
		return result, err
	}
	if result.Mechas, err = s.Conn.Number("SELECT count(*) FROM mecha"); err != nil {
		return result, err
	}
	result.Last, err = LastPosition(s.Conn)
	return result, err
}
