package sqlite

import (
	"golang.org/x/sys/windows"
)

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

// countNoRoom does nothing: SQLite for Windows knows both codes for a full disk, and a
// quota reports the same.
func countNoRoom() {}
