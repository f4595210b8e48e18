//go:build unix

package conformance

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the command a process group of its own: a program may be started by
// another one, such as a shell, and both must end.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }

// terminate asks the program to end. It returns false if this system cannot ask.
func (p *program) terminate() bool { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) == nil }
