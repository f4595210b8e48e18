//go:build unix

package platform

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SyncDir syncs a directory, so that a new name in it survives a power cut.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil // this file system cannot sync directories
	}
	return errors.Join(err, d.Close())
}

// FreeDisk returns how many bytes an ordinary user can still write on the disk of path.
func FreeDisk(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// ReadableByOthers reports whether users other than the owner have any permission on
// the file at path.
func ReadableByOthers(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.Mode().Perm()&0o077 != 0, nil
}

// Links returns how many names (hard links) the file at path has.
func Links(path string) (int, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0, err
	}
	return int(s.Nlink), nil
}

// OnlyOurs reports whether a file or folder belongs to the user of this process, and no other
// user has any permission on it.
func OnlyOurs(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}

// GiveToOwnerOf changes the owner and the group of the file at made to the owner and group of the file or
// folder at path, if this process runs as root and that owner, who is not root, could not open it
// otherwise. If the system does not allow that, the file is unchanged.
func GiveToOwnerOf(path, made string) {
	if os.Geteuid() != 0 {
		return
	}
	info, err := os.Stat(path)
	if err != nil {
		return
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 {
		_ = os.Lchown(made, int(s.Uid), int(s.Gid))
	}
}
