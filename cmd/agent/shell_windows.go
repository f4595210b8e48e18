package agent

import (
	"context"
	"os/exec"
	"syscall"
)

// shell returns a command that runs a line, which cmd.exe reads unchanged, in its own process group: Ctrl-C
// reaches only us.
func shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "cmd")
	c.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /S /C "` + line + `"`,
		CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	return c
}
