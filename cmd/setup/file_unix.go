//go:build unix

package setup

import (
	"io/fs"
	"os"
	"syscall"
)

// ofOther reports whether a file belongs to another user than the one of this process.
func ofOther(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) != os.Geteuid()
}
