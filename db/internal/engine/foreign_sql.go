package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
)

// foreign is the writer's background task that notices, a few times a second, that another
// process has written to the log, or has removed or replaced one of the files. It reads PRAGMA
// data_version on the writer's connection, where our own commits do not count. watch finds out
// what the other process has changed.
type foreign struct {
	w       *Store
	readers *readers.Pool
	files   []servedFile // empty if this process does not serve
	checked time.Time    // by the real clock
	data    int64        // PRAGMA data_version when it was checked
}

// unknownVersion is not a data_version. It means that the file must be read again.
const unknownVersion = -1

func (f *foreign) Due(time.Time) bool { return time.Since(f.checked) >= TasksEvery }

func (f *foreign) Do(time.Time) {
	f.checked = time.Now()
	w := f.w
	if lost := f.lostFile(); lost != nil && w.Failed() == nil {
		w.Fail(f.leave(lost))
		return
	}
	data, err := w.C.Number("PRAGMA data_version")
	switch {
	case err == nil && data != f.data:
		f.data, w.Checkpoints.CopySoon = data, true
	case err != nil && sqlite.IsFatal(err):
		w.Fail(err)
	}
}

// forgetStale has the rooms forget what they have read if another process has written to the
// file, so that jobs are decided by the current file.
func (w *Store) forgetStale() error {
	version, err := w.C.Number("PRAGMA data_version")
	if err == nil && version != w.cachedAt {
		w.cachedAt = version
		w.forgetRead()
	}
	return err
}

// servedFile is a file that a server has open: the database, its log, the log's index
// or the lock. Other processes find it by its path.
type servedFile struct {
	path string
	was  os.FileInfo
}

// RememberFiles notes the files of the database, which must exist.
func (f *foreign) RememberFiles(database string) error {
	real, err := filepath.EvalSymlinks(database) // SQLite puts its files next to the real one
	if err != nil {
		return err
	}
	for _, path := range []string{database, real + "-wal", real + "-shm", real + ".lock"} {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		f.files = append(f.files, servedFile{path, info})
	}
	return nil
}

// lostFile returns an error if one of the files is no longer at its path, or another
// file is. Later commits would be lost: a deleted log takes them, and every fsync of it
// succeeds. A file that cannot be looked up for the moment does not count as lost.
func (f *foreign) lostFile() error {
	for _, file := range f.files {
		now, err := os.Stat(file.path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("%s was removed or renamed while it was in use", file.path)
		case err == nil && !os.SameFile(file.was, now):
			return fmt.Errorf("%s was replaced by another file while it was in use", file.path)
		}
	}
	return nil
}

// leave saves the commits in the log when one of the files is lost, and returns the
// error with which the store stops. lost says which file it is. leave copies the log
// into the database that is open, wherever that file is now, and empties the log, so
// that it cannot be taken for the log of another file. If another process has written
// meanwhile, perhaps to another log with the same index, leave copies nothing, because
// that could mix the two.
func (f *foreign) leave(lost error) error {
	w := f.w
	w.Checkpoints.wait()
	if data, err := w.C.Number("PRAGMA data_version"); err != nil || data != f.data {
		return fmt.Errorf("%w, and another process has written since: run relay check on the database", lost)
	}
	busy := int64(1)
	f.readers.Hold(holdTimeout)
	_, err := w.C.Row(func(r *sqlite.Rows) { busy = r.Int(0) }, "PRAGMA wal_checkpoint(TRUNCATE)")
	f.readers.Release()
	switch {
	case err != nil:
		return fmt.Errorf("%w; its log could not be copied into the database, which may lack the newest messages: %w",
			lost, err)
	case busy != 0:
		return fmt.Errorf("%w; another process kept the log from being copied into the database, "+
			"which may lack the newest messages", lost)
	}
	return fmt.Errorf("%w; all that was accepted is in the database file that was open", lost)
}
