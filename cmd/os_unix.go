//go:build unix

package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"relay/db"
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

// stopBetweenWrites has Ctrl-Z stop this process only while it has no lock on a
// database. A process that is stopped in the middle of a transaction keeps every other
// process from writing.
func stopBetweenWrites() {
	if os.Getpid() == 1 {
		return // the first process of a container cannot be stopped
	}
	asked := make(chan os.Signal, 1)
	for _, s := range []os.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} { // of a terminal: Ctrl-Z, reading or writing in the background
		if !signal.Ignored(s) {
			signal.Notify(asked, s)
		}
	}
	go func() {
		for range asked {
			db.WithoutLocks(stopSelf)
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

// denied says why this process may not open the file at path, if that is for
// want of a permission; otherwise it returns nil. SQLite itself says no more
// than "unable to open database file".
func denied(path string, write bool) error {
	mode := uint32(unix.R_OK)
	if write {
		mode |= unix.W_OK
	}
	if !errors.Is(unix.Access(path, mode), fs.ErrPermission) {
		return nil
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	name, at := "it", path
	info, err := os.Stat(at)
	for ; err != nil && at != "/"; info, err = os.Stat(at) { // up to the folder that is closed to us
		at = filepath.Dir(at)
		name = at
	}
	if err != nil {
		return nil
	}
	uid := info.Sys().(*syscall.Stat_t).Uid
	if int(uid) == os.Geteuid() {
		return fmt.Errorf("%s: permission denied: %s has mode %04o", path, name, info.Mode().Perm())
	}
	owner := fmt.Sprintf("user %d", uid)
	if u, err := user.LookupId(strconv.Itoa(int(uid))); err == nil {
		owner = u.Username
	}
	return fmt.Errorf("%s: permission denied: %s belongs to %s, with mode %04o; run this command as that user", path, name, owner, info.Mode().Perm())
}
