// Package lock keeps two processes from using the same file at the same time: two servers
// one database (packages db and db/file), two listeners one bookmark (package
// http/client). It also replaces small files, so that a reader finds a whole one. It does
// not know the contents of these files.
package lock

import (
	"errors"
	"os"
)

// ErrHeld is the error of File if another process has the lock.
var ErrHeld = errors.New("locked by another process")

// Held is a lock that this process has, until Close or the end of the process.
type Held struct{ file *os.File }

// File takes an exclusive lock on the file at path, which it makes if it is missing: ErrHeld
// if another process has the lock. Only the holder of the lock may remove the file. Any
// goroutine may call it.
func File(path string) (*Held, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err = take(f); err == nil && !isAt(f, path) { // its holder has removed the file meanwhile
		err = ErrHeld
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Held{f}, nil
}

func isAt(f *os.File, path string) bool {
	ours, err := f.Stat()
	there, err2 := os.Stat(path)
	return err == nil && err2 == nil && os.SameFile(ours, there)
}

// Close releases the lock at once. Closing the file alone would not: while this process
// starts another, the other has a copy of the descriptor for a moment, and with it the
// lock. Close of nil does nothing.
func (h *Held) Close() error {
	if h == nil {
		return nil
	}
	return errors.Join(release(h.file), h.file.Close())
}
