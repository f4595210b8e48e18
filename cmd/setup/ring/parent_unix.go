//go:build unix

package ring

import "os"

// parentGone returns a function that reports whether the parent of this process has ended. Its children then
// get another parent.
func parentGone() func() bool {
	parent := os.Getppid()
	return func() bool { return os.Getppid() != parent }
}
