package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// LockFile takes an exclusive lock on the file at path, which it makes if it is
// missing: ErrLocked if another process has the lock. Closing the file releases the
// lock, and so does the end of the process.
func LockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	if err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped)); err != nil {
		f.Close()
		if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
			err = ErrLocked
		}
		return nil, err
	}
	return f, nil
}

// SyncDir does nothing: Windows has no fsync of directories.
func SyncDir(string) error { return nil }

// FreeDisk gives how many bytes the user can still write on the disk of path.
func FreeDisk(path string) (int64, error) {
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(p, &free, nil, nil); err != nil {
		return 0, err
	}
	return int64(free), nil
}

// ReadableByOthers is always false on Windows, where access lists decide.
func ReadableByOthers(string) (bool, error) { return false, nil }
