//go:build unix

package display

import (
	"os"

	"golang.org/x/sys/unix"
)

// Unread reports whether f is a pipe, or something like it, whose reader has gone.
func Unread(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
