package lock_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"relay/db/lock"
)

// Two descriptors are as good as two processes: the lock belongs to the open file.
func TestOnlyOneHasTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db.lock")
	first, err := lock.File(path)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := lock.File(path); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("%v, %v", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lock.File(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	// Closed means released, though a process that is being started still has a copy of
	// the descriptor: here, another descriptor of the same open file.
	held, err := lock.File(path)
	if err != nil {
		t.Fatal(err)
	}
	lock.Duplicate(t, held)
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if again, err = lock.File(path); err != nil {
		t.Fatal(err)
	}
	again.Close()
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Errorf("the file is not left as it was: %v, %v", info, err)
	}
}
