// Package system asks the operating system what package os cannot: to run a line of
// shell as a process group, to stop between two writes, whether the reader of a pipe or
// the parent of this process is gone, how many files may be open, and who may open a
// database. If a system has no way to check something, the check passes. This package knows no command
// and no output.
package system
