package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const maxBytes = 16 << 20 // of a configuration file

// config is a configuration file as it was when it was read.
type config struct {
	path string // where symbolic links lead to
	text []byte
	mode fs.FileMode // 0: there is no file
}

func (c *config) exists() bool { return c.mode != 0 }

// readConfig reads a file that may be missing, and checks that it may be replaced: it is a
// file of this user, who may write it. A project's file must lie in the project: somebody
// else may have made the link that leads out of it.
func readConfig(t Target) (*config, error) {
	real, err := resolve(t.Path)
	if err != nil {
		return nil, err
	}
	if t.Project != "" {
		folder, err := resolve(t.Project)
		if err != nil {
			return nil, err
		}
		if inside, err := filepath.Rel(folder, real); err != nil || !filepath.IsLocal(inside) {
			return nil, fmt.Errorf("%s leads out of the project, to %s: remove the link, or leave --project out",
				t.Path, real)
		}
	}
	info, err := os.Stat(real)
	if errors.Is(err, fs.ErrNotExist) {
		return &config{path: real}, ownFolder(real)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", real)
	case ofOther(info):
		return nil, fmt.Errorf("%s belongs to another user; run relay setup as that user", real)
	case info.Mode().Perm()&0o200 == 0:
		return nil, fmt.Errorf("%s is read-only (mode %04o); allow writing (chmod u+w), or add yourself what --dry-run shows",
			real, info.Mode().Perm())
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("%s is too large for a configuration file: %d bytes", real, info.Size())
	}
	text, err := os.ReadFile(real)
	return &config{real, text, info.Mode().Perm()}, err
}

// resolve follows symbolic links, so that a link stays a link. A link that leads nowhere is
// refused: it is unclear what was meant.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for there := path; ; there = filepath.Dir(there) {
		real, err := filepath.EvalSymlinks(there)
		if err == nil {
			return filepath.Join(real, path[len(there):]), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			return "", err
		}
		if info, e := os.Lstat(there); e == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("%s is a broken symbolic link", there)
		}
	}
}

// ownFolder refuses to make a file in the folder of another user, where root could: that
// user could not write it.
func ownFolder(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s is not a folder", dir)
		case err == nil && ofOther(info) && os.Geteuid() == 0:
			return fmt.Errorf("%s belongs to another user; run relay setup as that user", dir)
		case err == nil || !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return err
		}
	}
}

// replace writes the file at once as a whole, if it still is as it was read.
func (c *config) replace(text []byte, mode fs.FileMode) error {
	part := filepath.Join(filepath.Dir(c.path), "."+filepath.Base(c.path)+".relay-new")
	_ = os.Remove(part) // a killed process may have left it
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(part)
	_, err = io.Copy(f, bytes.NewReader(text))
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = c.unchanged()
	}
	if err != nil {
		return err
	}
	return os.Rename(part, c.path)
}

// unchanged refuses if somebody has changed the file since it was read.
func (c *config) unchanged() error {
	text, err := os.ReadFile(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !c.exists():
		return nil
	case errors.Is(err, fs.ErrNotExist), err == nil && (!c.exists() || !bytes.Equal(text, c.text)):
		return fmt.Errorf("%s was changed by somebody else at this moment; nothing was written to it, try again", c.path)
	}
	return err
}

// remove removes the file, if it still is as it was read.
func (c *config) remove() error {
	if err := c.unchanged(); err != nil {
		return err
	}
	return os.Remove(c.path)
}

// makeFolders makes the folders of a path, and returns those that were missing, the inner
// first.
func makeFolders(path string, mode fs.FileMode) (made []string, err error) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		made = append(made, dir)
	}
	return made, os.MkdirAll(filepath.Dir(path), mode)
}
