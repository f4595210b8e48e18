package search

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// restrictPermissions removes the permissions of all other users, since the index holds
// profiles that they must not see. Bleve creates its files by the umask, and the folder
// may have existed before. On a file system without permissions the index still works;
// the log warns.
func (x *Index) restrictPermissions() {
	if runtime.GOOS == "windows" {
		return // where the access list of the folder decides
	}
	err := errors.Join(removePermissions(x.dir, 0o700), removePermissions(filepath.Join(x.dir, "index_meta.json"), 0o600))
	store := filepath.Join(x.dir, "store")
	err = errors.Join(err, removePermissions(store, 0o700))
	files, _ := os.ReadDir(store) // without a folder there is nothing to protect
	for _, f := range files {
		err = errors.Join(err, removePermissions(filepath.Join(store, f.Name()), 0o600))
	}
	if err != nil {
		x.log.Warn("other users may read the search index", "folder", x.dir, "cause", err)
	}
}

// removePermissions sets the mode of a file, if other users have any permission on it. A
// missing file is not an error.
func removePermissions(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Perm()&0o077 == 0:
		return nil
	}
	return os.Chmod(path, mode)
}
