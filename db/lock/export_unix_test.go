//go:build unix

package lock

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Duplicate copies the descriptor of a lock's file, as a fork does, until the test ends.
func Duplicate(t *testing.T, h *Held) {
	t.Helper()
	fd, err := unix.Dup(int(h.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
}
