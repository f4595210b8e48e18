//go:build unix

package cmd_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// free returns how many bytes can still be written on the file system of f.
func free(t *testing.T, f *os.File) int64 {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * int64(s.Bsize)
}

func pause(s *server)  { signal(s, unix.SIGSTOP) }
func resume(s *server) { signal(s, unix.SIGCONT) }
func ctrlZ(s *server)  { signal(s, unix.SIGTSTP) }

func signal(s *server, sig unix.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) { // it may have ended just now
		s.t.Fatal(err)
	}
}
