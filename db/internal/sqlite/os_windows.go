package sqlite

import (
	"golang.org/x/sys/windows"
)

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
