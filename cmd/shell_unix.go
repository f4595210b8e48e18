//go:build !windows

package cmd

import (
	"context"
	"os/exec"
	"syscall"
)

// shell makes a command of a line. It is a process group of its own: Ctrl-C
// is for us alone, and when the context ends all of it is killed.
func shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}
