package system

import (
	"context"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

const AddressInUse = windows.WSAEADDRINUSE

// Shell makes a command that runs a line, which cmd.exe reads as it is. The
// command is a process group of its own: Ctrl-C reaches only us.
func Shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "cmd")
	c.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /S /C "` + line + `"`,
		CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	return c
}

// StopBetweenWrites does nothing: Windows has no Ctrl-Z that stops a process.
func StopBetweenWrites() {}

// Unread would tell whether f is a pipe whose reader has gone. Windows has no way
// to ask.
func Unread(*os.File) bool { return false }

// ParentGone returns a function that tells whether the process that has started this one
// has ended. A parent that cannot be watched counts as there.
func ParentGone() func() bool {
	parent, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(os.Getppid()))
	if err != nil {
		return func() bool { return false }
	}
	return func() bool {
		state, err := windows.WaitForSingleObject(parent, 0)
		return err == nil && state == windows.WAIT_OBJECT_0
	}
}

// OpenFiles returns false: Windows has no limit that matters here.
func OpenFiles() (int, bool) { return 0, false }

// Denied returns err as it is. Windows grants access by lists, so the system's own error
// must do.
func Denied(_ string, _ bool, err error) error { return err }
