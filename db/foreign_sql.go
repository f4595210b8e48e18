package db

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"relay/db/internal/sqlite"
)

// foreign notices, a few times a second, what other processes do to the file:
// that they wrote to it, changed keys, or took one of its names away. It runs on
// the writer's own connection, where our own commits do not count as changes.
type foreign struct {
	w       *writer
	readers *readerPool
	files   []servedFile // of a server
	checked time.Time    // by the real clock
	data    int64        // PRAGMA data_version
	keys    int64        // setting keys_version
}

func (f *foreign) due(time.Time) bool { return time.Since(f.checked) >= servantsEvery }

func (f *foreign) do(time.Time) {
	f.checked = time.Now()
	w := f.w
	if lost := f.lostFile(); lost != nil && w.failed() == nil {
		w.fail(f.leave(lost))
		return
	}
	data, err := w.c.Number("PRAGMA data_version")
	if err != nil {
		if sqlite.IsFatal(err) {
			w.fail(err)
		}
		return
	}
	if data == f.data {
		return
	}
	_, keys := w.versions()
	f.data, w.checkpoints.copySoon = data, true
	w.mechas.forget()
	w.listeners.entriesChanged()
	if keys != f.keys {
		f.keys = keys
		w.listeners.keysChanged()
	}
}

// versions reads what changes when another process writes (data) and when keys change.
func (w *writer) versions() (data, keys int64) {
	data, _ = w.c.Number("PRAGMA data_version")
	keys, _ = w.c.Number("SELECT value FROM setting WHERE name = 'keys_version'")
	return data, keys
}

// forgetStale forgets which keys and Mechas there are if another process has
// written to the file: jobs are decided by what it has now. (The counts of what is
// pending stay: no other process sends or acknowledges.)
func (w *writer) forgetStale() error {
	version, err := w.c.Number("PRAGMA data_version")
	if err == nil && version != w.cachedAt {
		w.cachedAt = version
		w.mechas.forget()
		clear(w.callers)
	}
	return err
}

// servedFile is a file that a server has open, by a name that other processes
// open it by: the database, its log, the log's index, the lock.
type servedFile struct {
	path string
	was  os.FileInfo
}

// rememberFiles notes which files the names mean now. Call it when all exist.
func (f *foreign) rememberFiles(database string) error {
	real, err := filepath.EvalSymlinks(database) // SQLite's own files stand beside the real one
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

// lostFile tells which of the files has lost its name, or that its name means
// another file now. What is written from then on is found by nobody: a deleted
// log takes commits, and every fsync of it succeeds. Only a name that is
// certainly gone counts, not one that cannot be checked at for the moment.
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

// leave is called by the writer when one of the files has lost its name (lost
// says which). What was acknowledged since is in the log, which nobody may find
// any more: copied into the database, wherever that has gone, it is safe, and
// the emptied log can be taken for that of no other file. If another process
// has written meanwhile, perhaps into another log under the same index, a copy
// could mix the two. It gives the error to stop with.
func (f *foreign) leave(lost error) error {
	w := f.w
	w.checkpoints.wait()
	if data, _ := w.versions(); data != f.data {
		return fmt.Errorf("%w, and another process has written since: relay check tells whether the database is whole", lost)
	}
	held, busy := f.readers.hold(holdTimeout), int64(1)
	_, err := w.c.Row(func(r *sqlite.Rows) { busy = r.Int(0) }, "PRAGMA wal_checkpoint(TRUNCATE)")
	f.readers.release(held)
	switch {
	case err != nil:
		return fmt.Errorf("%w; its log could not be copied into the database, which may lack the newest messages: %w", lost, err)
	case busy != 0:
		return fmt.Errorf("%w; another process kept the log from being copied into the database, which may lack the newest messages", lost)
	}
	return fmt.Errorf("%w; all that was accepted is in the database file that was open", lost)
}
