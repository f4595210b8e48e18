package lock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Inode takes an exclusive lock on the file at path itself, which stands for all names of
// the file: ErrHeld if another process has it. The lock (flock(2)) does not conflict with
// the locks that SQLite takes on a database (fcntl(2)). On a network file system it could,
// because such a file system may turn one kind into the other. There, Inode returns nil and
// no error, and Close of nil does nothing. Close the lock after the last connection to the
// database: if SQLite's locks belong to the process, the close of any descriptor drops
// them. Any goroutine may call it.
func Inode(path string) (*Held, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil || isNetwork(int64(s.Type)) {
		return nil, f.Close()
	}
	err = take(f)
	if err == nil {
		return &Held{f}, nil
	}
	f.Close()
	if errors.Is(err, ErrHeld) {
		return nil, err
	}
	return nil, nil // this file system has no such locks
}

// isNetwork reports whether a file system, by its number in statfs(2), may turn flock
// into a lock of fcntl.
func isNetwork(kind int64) bool {
	switch uint32(kind) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.V9FS_MAGIC,
		unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return true
	}
	return false
}

// IsHeld reports whether a process has the lock of File or Inode on the file at path. For a
// moment IsHeld has a shared lock itself, so a process that fails to take the lock should
// try again. It returns the errors of opening the file. Any goroutine may call it.
func IsHeld(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		release(f) // a process that is being started may have a copy of the descriptor
	}
	return errors.Is(err, unix.EWOULDBLOCK), nil
}
