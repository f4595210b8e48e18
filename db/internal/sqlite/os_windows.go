package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// LockFile takes an exclusive lock that ends with the process, or says ErrLocked.
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

// FreeDisk gives the bytes that the user may still write beside path.
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

// ReadableByOthers knows nothing on Windows, where access lists say it.
func ReadableByOthers(string) (bool, error) { return false, nil }
