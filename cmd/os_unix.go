//go:build unix

package cmd

import (
	"context"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const addressInUse = unix.EADDRINUSE

// shell makes a command that runs a line of shell. The command is a process
// group of its own: Ctrl-C reaches only us, and the end of the context kills the
// whole group.
func shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}

// unread tells whether f is a pipe, or something like it, whose reader has gone.
func unread(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// openFiles returns how many files this process may have open, and false if no
// limit is known. Package os has raised it to the hard limit at the start.
func openFiles() (int, bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || uint64(l.Cur) > 1<<30 {
		return 0, false
	}
	return int(l.Cur), true
}
