package ring

import (
	"os"

	"golang.org/x/sys/windows"
)

// parentGone returns a function that reports whether the parent of this process has ended. A parent that cannot
// be watched counts as running.
func parentGone() func() bool {
	parent, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(os.Getppid()))
	if err != nil {
		return func() bool { return false }
	}
	return func() bool {
		state, err := windows.WaitForSingleObject(parent, 0)
		return err == nil && state == windows.WAIT_OBJECT_0
	}
}
