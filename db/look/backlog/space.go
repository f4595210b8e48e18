package backlog

import (
	"os"
	"path/filepath"

	"relay/db/internal/platform"
	"relay/db/internal/sqlite"
)

// Space is the disk space of a store, in bytes.
type Space struct {
	File     int64 // the database
	Log      int64 // its write-ahead log
	DiskFree int64 // free to an ordinary user; -1 if unknown
}

// SpaceOf measures the files of the store at path.
func SpaceOf(path string) Space {
	s := Space{Log: sqlite.LogSize(path), DiskFree: -1}
	if info, err := os.Stat(path); err == nil {
		s.File = info.Size()
	}
	if free, err := platform.FreeDisk(filepath.Dir(path)); err == nil {
		s.DiskFree = free
	}
	return s
}
