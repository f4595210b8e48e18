package db

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

var errLocked = errors.New("locked by another process")

// checkDisk compares the free space with the floor. A file system that does
// not tell is taken to have room: SQLite will say when it has not.
func (d *DB) checkDisk() {
	low := false
	if d.opts.MinFreeDisk > 0 {
		free, err := freeDisk(filepath.Dir(d.path))
		low = err == nil && free < d.opts.MinFreeDisk
	}
	if was := d.diskLow.Swap(low); was != low {
		d.opts.Logger.Warn("free disk floor", "refusing_messages", low, "floor_bytes", d.opts.MinFreeDisk)
	}
}

// servedFile is a file that a server has open, by a name that other processes
// open it by: the database, its log, the log's index, the lock.
type servedFile struct {
	path string
	was  os.FileInfo
}

// rememberFiles notes which files the names mean now. Call it when all exist.
func (d *DB) rememberFiles() error {
	real, err := filepath.EvalSymlinks(d.path) // SQLite's own files stand beside the real one
	if err != nil {
		return err
	}
	for _, path := range []string{d.path, real + "-wal", real + "-shm", real + ".lock"} {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		d.files = append(d.files, servedFile{path, info})
	}
	return nil
}

// lostFile tells which of the files has lost its name, or that its name means
// another file now. What is written from then on is found by nobody: a deleted
// log takes commits, and every fsync of it succeeds. Only a name that is
// certainly gone counts, not one that cannot be looked at for the moment.
func (d *DB) lostFile() error {
	for _, f := range d.files {
		now, err := os.Stat(f.path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("%s was removed or renamed while it was in use", f.path)
		case err == nil && !os.SameFile(f.was, now):
			return fmt.Errorf("%s was replaced by another file while it was in use", f.path)
		}
	}
	return nil
}
