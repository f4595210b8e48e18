// Package series adds copies of one database to a folder, and keeps the newest. It does not add a
// copy of another database, or of an older state than the newest copy: each would push out a better
// one. One process at a time can add copies to a folder; restores only read it (file.SeriesCopies).
package series

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/lock"
	"relay/db/relay"
)

// A Series is a folder with copies of one database, of which the newest are kept. Its methods may
// not be called concurrently.
type Series struct {
	folder string
	keep   int
	held   *lock.Held  // nil: the folder is not locked
	locked os.FileInfo // the file that is locked
}

// ErrHeld is the error of Add if another process adds copies to the folder.
var ErrHeld = errors.New("another relay backup --every uses this folder")

const lockName = ".relay-backup.lock"

// New returns the Series in a folder, which Add locks. keep is how many copies stay.
// The caller closes it.
func New(folder string, keep int) *Series { return &Series{folder: folder, keep: keep} }

// Close releases the folder.
func (s *Series) Close() error {
	err := s.held.Close()
	s.held = nil
	return err
}

// Add adds a copy of the database o.From, and then removes the oldest copies beyond the limit. If
// the clock was set back, the name has a time just after the newest copy's. o.To is ignored. After
// an error, the folder has no new copy, or the error says that old ones could not be removed. The
// error is ErrHeld if another process has the folder. Add refuses a database that the newest
// readable copy was not made of, or is ahead of: each copy of it would push out a better one.
func (s *Series) Add(ctx context.Context, o file.BackupOptions) (file.BackupResult, error) {
	if err := s.lock(); err != nil {
		return file.BackupResult{}, err
	}
	there, err := file.SeriesCopies(s.folder)
	if err != nil {
		return file.BackupResult{}, err
	}
	if err := mustGoOn(o.From, there); err != nil {
		return file.BackupResult{}, err
	}
	at := time.Now()
	if len(there) > 0 && !at.Truncate(time.Millisecond).After(there[0].At) {
		at = there[0].At.Add(time.Millisecond)
	}
	o.To, o.Replace = filepath.Join(s.folder, file.SeriesName(at)), false
	result, err := file.Backup(ctx, o)
	if err != nil {
		return result, err
	}
	for _, old := range there[min(s.keep-1, len(there)):] {
		err = errors.Join(err, os.Remove(old.Path))
	}
	if err != nil {
		err = fmt.Errorf("the copy %s was made, but old ones could not be removed: %w", result.Path, err)
	}
	return result, err
}

// mustGoOn refuses the database at path if the newest readable one of copies, which begin
// with the newest, is of another database or has a later position. A restored database has
// the secret of its copies, and Restore moves its position past theirs.
func mustGoOn(path string, copies []file.SeriesCopy) error {
	now, err := originAt(path)
	if err != nil {
		return err
	}
	for _, c := range copies {
		then, err := originAt(c.Path)
		switch {
		case file.IsOfAnotherVersion(err) || file.IsDenied(err):
			return fmt.Errorf("%w; or use another folder for the copies", err)
		case err != nil: // it is damaged, or not a copy of a relay
			continue
		case !bytes.Equal(then.secret, now.secret):
			return fmt.Errorf("%s is a copy of another database: use another folder, or remove the copies of that one", c.Path)
		case then.last > now.last:
			return fmt.Errorf("%s is newer than this database: use another folder, or remove it", c.Path)
		}
		return nil
	}
	return nil
}

// An origin names the database, and its state, that a file is a copy of.
type origin struct {
	secret []byte // made with the database, and the same in its copies
	last   relay.Position
}

// originAt reads the origin of the file at path.
func originAt(path string) (o origin, err error) {
	c, _, err := file.OpenReadOnly(path)
	if err != nil {
		return o, err
	}
	if o.last, err = file.LastPosition(c); err == nil {
		_, err = c.Row(func(r *sqlite.Rows) { o.secret = r.Blob(0) }, "SELECT value FROM setting WHERE name = 'secret'")
	}
	return o, errors.Join(err, c.Close())
}

// lock locks the folder, unless this Series has locked the folder that is there now: it may
// have been mounted, or recreated, since the last copy.
func (s *Series) lock() error {
	path := filepath.Join(s.folder, lockName)
	if s.held != nil {
		if now, err := os.Stat(path); err == nil && os.SameFile(now, s.locked) {
			return nil
		}
		s.Close()
	}
	if info, err := os.Stat(s.folder); errors.Is(err, os.ErrNotExist) || err == nil && !info.IsDir() {
		return fmt.Errorf("there is no directory %s: make it", s.folder)
	}
	held, err := lock.File(path)
	if errors.Is(err, lock.ErrHeld) {
		return fmt.Errorf("%s: %w", s.folder, ErrHeld)
	}
	if err != nil {
		return err
	}
	if s.locked, err = os.Stat(path); err != nil {
		return errors.Join(err, held.Close())
	}
	s.held = held
	return nil
}
