package file

import (
	"context"
	"fmt"
	"path/filepath"

	"relay/db/internal/sqlite"
)

// copySlice is how many pages are copied between two looks at ctx: about 2 MiB.
const copySlice = 256

// copyPages copies the pages of one state of a database into an empty file,
// which becomes a database without a log: a single file, that can be read
// without making others.
//
// SQLite's backup starts again whenever somebody else commits between two
// slices, unless the reading connection is inside a transaction: then it goes
// on seeing one state, and slices may be small. VACUUM INTO would give a denser
// file, but takes some three times as long, for which the log of the served
// file would grow; relay compact does that on a file that nobody waits for.
func copyPages(ctx context.Context, from, to string, progress Progress) (result BackupResult, err error) {
	s, err := openSnapshot(ctx, from)
	if err != nil {
		return result, err
	}
	defer s.close()
	if err := s.checkRoom(filepath.Dir(to)); err != nil {
		return result, err
	}
	if result, err = s.count(); err != nil {
		return result, unreadable(from, err)
	}
	b, err := s.c.CopyTo(to)
	if err != nil {
		return result, fmt.Errorf("%s: %w", to, err)
	}
	for more := true; more && err == nil; {
		if err = ctx.Err(); err != nil {
			break
		}
		more, err = b.Step(copySlice)
		if total := int64(b.PageCount()); progress != nil && total > 0 {
			progress("copying", total-int64(b.Remaining()), total)
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
		return unreadable(from, err)
	}
	return err
}

// withoutLog marks a copied file as one without a log: it was copied with the
// mark of its source. Nobody else has it open.
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

// size is what the file will have, its log included.
func (s *snapshot) size() (int64, error) {
	pages, err := s.c.Number("PRAGMA page_count")
	if err != nil {
		return 0, err
	}
	page, err := s.c.Number("PRAGMA page_size")
	return pages * page, err
}

// checkRoom refuses to begin what the disk has no room for.
func (s *snapshot) checkRoom(dir string) error {
	size, err := s.size()
	if err != nil {
		return unreadable(s.path, err)
	}
	if free, err := sqlite.FreeDisk(dir); err == nil && free < size {
		return fmt.Errorf("the copy needs %d MiB, and %s has %d MiB free: make room, or choose another place", size>>20, dir, free>>20)
	}
	return nil
}

func (s *snapshot) count() (result BackupResult, err error) {
	if result.Messages, err = s.c.Number("SELECT count(*) FROM message"); err != nil {
		return result, err
	}
	result.Mechas, err = s.c.Number("SELECT count(*) FROM mecha")
	return result, err
}
