package cmd

import (
	"context"
	"os/exec"
	"syscall"
)

// shell makes a command of a line, which cmd reads as it is. It is a process
// group of its own: Ctrl-C is for us alone.
func shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "cmd")
	c.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /S /C "` + line + `"`, CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	return c
}
