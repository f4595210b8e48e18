package http_test

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// mountSmall returns a directory with a file system of 48 MiB; "" if that cannot be had.
func mountSmall(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "small")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if syscall.Mount("relay-test", dir, "tmpfs", 0, "size=48m") != nil {
		return ""
	}
	t.Cleanup(func() {
		for end := time.Now().Add(patience); syscall.Unmount(dir, 0) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Error("the file system stays mounted")
				return
			}
		}
	})
	return dir
}
