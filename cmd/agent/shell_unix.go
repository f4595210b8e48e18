//go:build unix

package agent

import (
	"context"
	"os/exec"
	"syscall"
)

// shell returns a command that runs a line of shell in its own process group: Ctrl-C reaches only us, and the
// end of the context kills the whole group.
func shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}
