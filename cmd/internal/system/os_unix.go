//go:build unix

package system

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"relay/db"
)

const AddressInUse = unix.EADDRINUSE

// Shell makes a command that runs a line of shell. The command is a process
// group of its own: Ctrl-C reaches only us, and the end of the context kills the
// whole group.
func Shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}

// StopBetweenWrites makes Ctrl-Z wait until this process has no lock on a database. A
// process that is stopped in the middle of a transaction keeps every other process from
// writing. The second call does nothing.
func StopBetweenWrites() { stopsBetweenWrites.Do(waitForStops) }

var stopsBetweenWrites sync.Once

func waitForStops() {
	if os.Getpid() == 1 {
		return // the first process of a container cannot be stopped
	}
	asked := make(chan os.Signal, 1)
	// of a terminal: Ctrl-Z, reading or writing in the background
	for _, s := range []os.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		if !signal.Ignored(s) {
			signal.Notify(asked, s)
		}
	}
	go func() {
		for range asked {
			db.WithoutLocks(func() {
				select {
				case <-asked: // one stop is enough for all signals that came until now
				default:
				}
				stopSelf()
			})
		}
	}()
}

// stopSelf stops this process and returns when it goes on.
func stopSelf() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	if unix.Kill(os.Getpid(), unix.SIGSTOP) != nil {
		return
	}
	select {
	case <-resumed:
	case <-time.After(time.Second): // the system has not stopped it after all
	}
}

// Unread tells whether f is a pipe, or something like it, whose reader has gone.
func Unread(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// ParentGone returns a function that tells whether the process that has started this one
// has ended. Its children then get another parent.
func ParentGone() func() bool {
	parent := os.Getppid()
	return func() bool { return os.Getppid() != parent }
}

// OpenFiles returns how many files this process may have open, and false if no
// limit is known. Package os has raised it to the hard limit at the start.
func OpenFiles() (int, bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || uint64(l.Cur) > 1<<30 {
		return 0, false
	}
	return int(l.Cur), true
}
