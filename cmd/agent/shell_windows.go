package agent

import (
	"context"
	"os/exec"
	"syscall"
)

// shell makes a command that runs a line, which cmd.exe reads as it is. The
// command is a process group of its own: Ctrl-C reaches only us.
func shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "cmd")
	c.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /S /C "` + line + `"`,
		CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	return c
}
