package platform

import (
	"errors"
	"os"
)

// linkNew is RenameNew by a hard link, which never replaces a file, and the removal of the
// first name. If the file system has no links, linkNew renames the file after a check that
// the path has none.
func linkNew(from, to string) error {
	err := os.Link(from, to)
	if err == nil {
		return os.Remove(from)
	}
	if errors.Is(err, os.ErrExist) {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return os.ErrExist
	}
	return os.Rename(from, to)
}
