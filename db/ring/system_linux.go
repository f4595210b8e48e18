package ring

import (
	"crypto/sha256"
	"os"

	"golang.org/x/sys/unix"
)

// MAP_POPULATE makes the pages writable at once, so that Add seldom waits for the file
// system.
const mapFlags = unix.MAP_SHARED | unix.MAP_POPULATE

// bootMark names the last boot of this system. Zero: unknown.
func bootMark() (m Mark) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil && len(id) > 0 {
		sum := sha256.Sum256(id)
		copy(m[:], sum[:])
	}
	return m
}

// identity identifies a file by its number and its time of birth, because the number of a
// removed file is reused.
func identity(f *os.File) uint64 {
	var s unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return 0
	}
	return mix(s.Ino, s.Btime.Sec, int64(s.Btime.Nsec))
}
