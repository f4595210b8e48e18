package cmd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// shell makes a command of a line, which cmd reads as it is. It is a process
// group of its own: Ctrl-C is for us alone.
func shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "cmd")
	c.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /S /C "` + line + `"`, CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	return c
}

// unread would tell whether f is a pipe whose reader has gone; that is not to be known here.
func unread(*os.File) bool { return false }

// tryLock takes an exclusive lock that ends with the process; false: another has it.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// openFiles knows no bound on Windows.
func openFiles() (int, bool) { return 0, false }
