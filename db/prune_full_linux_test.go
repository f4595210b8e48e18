package db

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// mountSmall returns a folder with a file system of 8 MiB.
func mountSmall(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("relay-test", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("only root can mount a file system: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A disk that gets full in the middle of a removal does not end it: the removal has its
// log copied, and continues in the room that this frees.
func TestAPruneOnAFullDiskComesToItsEnd(t *testing.T) {
	t.Parallel()
	dir := mountSmall(t)
	content, err := os.ReadFile(filled(t, 200))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "relay.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte{1}, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := os.Truncate(filler, fileSize(filler)-roomLeft); err != nil {
		t.Fatal(err)
	}
	if r, err := pruneAll(t, t.Context(), path, nil); err != nil || r.Messages != 200 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, said, r := checked(t, path); r.Faults > 0 {
		t.Error(said)
	}
}

const roomLeft = 450 << 10 // bytes, less than the removal writes into the log
