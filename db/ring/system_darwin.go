package ring

import (
	"crypto/sha256"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const mapFlags = unix.MAP_SHARED

// bootMark names the last boot of this system. Zero: unknown. kern.boottime would not
// do, because it changes when the clock is set.
func bootMark() (m Mark) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err == nil && id != "" {
		sum := sha256.Sum256([]byte(id))
		copy(m[:], sum[:])
	}
	return m
}

// identity identifies a file by its number and its time of birth, because the number of a
// removed file is reused.
func identity(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	s := info.Sys().(*syscall.Stat_t)
	return mix(s.Ino, s.Birthtimespec.Sec, s.Birthtimespec.Nsec)
}
