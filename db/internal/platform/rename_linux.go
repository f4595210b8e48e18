package platform

import (
	"errors"

	"golang.org/x/sys/unix"
)

// RenameNew renames a file to a path that has none: os.ErrExist if it has one. At no
// moment does the file have both names.
func RenameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // this file system or kernel cannot do it
		return linkNew(from, to)
	}
	return err
}
