package file

import "relay/db/internal/platform"

// SyncDir syncs a folder, so that a new name in it survives a power cut. Any goroutine may call it.
func SyncDir(path string) error { return platform.SyncDir(path) }

// FreeDisk returns how many bytes the user can still write on the disk of path. Any goroutine may
// call it.
func FreeDisk(path string) (int64, error) { return platform.FreeDisk(path) }

// PageSize is the size of a page, in bytes.
const PageSize = 4096
