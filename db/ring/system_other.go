//go:build unix && !linux && !darwin

package ring

import (
	"os"

	"golang.org/x/sys/unix"
)

const mapFlags = unix.MAP_SHARED

// bootMark is zero, because these systems have no common name for a boot.
func bootMark() (m Mark) { return m }

// identity identifies a file by its number.
func identity(f *os.File) uint64 {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return 0
	}
	return mix(uint64(s.Ino), 0, 0)
}
