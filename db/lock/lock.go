// Package lock keeps two processes from using the same file at the same time: two
// servers one database (packages db and db/file), two listeners one bookmark (package
// cmd). It knows nothing of the files that it protects.
package lock

import (
	"errors"
	"os"
)

// ErrHeld is the error of File if another process has the lock.
var ErrHeld = errors.New("locked by another process")

// File takes an exclusive lock on the file at path, which it makes if it is missing:
// ErrHeld if another process has the lock. Closing the file releases the lock, and so
// does the end of the process. Do not remove the file: two processes could then lock
// two files of the same name. Safe for concurrent use.
func File(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := take(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
