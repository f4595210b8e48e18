package search

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// private takes the index away from all other users: it tells of profiles that
// they must not see. Bleve makes its files as the umask wants, and the folder
// may have been there before. A file system that cannot do it is no reason not
// to search.
func (x *Index) private() {
	if runtime.GOOS == "windows" {
		return // who may read a file is decided by its folder's list there
	}
	err := errors.Join(chmod(x.dir, 0o700), chmod(filepath.Join(x.dir, "index_meta.json"), 0o600))
	store := filepath.Join(x.dir, "store")
	err = errors.Join(err, chmod(store, 0o700))
	files, _ := os.ReadDir(store) // none: there is nothing to hide
	for _, f := range files {
		err = errors.Join(err, chmod(filepath.Join(store, f.Name()), 0o600))
	}
	if err != nil {
		x.log.Warn("other users may read the search index", "folder", x.dir, "cause", err)
	}
}

// chmod sets the mode of a file that others can do anything with.
func chmod(path string, mode fs.FileMode) error {
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
