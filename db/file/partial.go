package file

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"relay/db/internal/platform"
	"relay/db/lock"
)

// A partial is a file that is being made. It is in a separate folder, next to its final
// path, together with a lock. A process that is killed leaves the folder behind, but its
// lock ends. The next backup, restore or server there removes the folder.
type partial struct {
	folder string // .NAME.partial-NUMBER; only its owner can read it
	path   string // the file
	held   *lock.Held
}

// partialLock is the name of the lock in the folder of a partial.
const partialLock = "lock"

// newPartial makes an empty file of mode 0600, which place or replace will move to the path
// to.
func newPartial(to string) (*partial, error) {
	RemovePartials(filepath.Dir(to))
	for tries := 0; ; tries++ {
		p, err := tryPartial(to)
		// Before the new folder is locked, another process may take it for an abandoned one.
		if err == nil || tries == lockTries || !errors.Is(err, lock.ErrHeld) && !errors.Is(err, os.ErrNotExist) {
			return p, err
		}
	}
}

func tryPartial(to string) (*partial, error) {
	name := filepath.Base(to)
	folder, err := os.MkdirTemp(filepath.Dir(to), "."+name+".partial-*") // 0700
	if err != nil {
		return nil, err
	}
	held, err := lock.File(filepath.Join(folder, partialLock))
	if err != nil {
		os.Remove(folder)
		return nil, err
	}
	p := &partial{folder, filepath.Join(folder, name), held}
	f, err := os.OpenFile(p.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		p.remove()
		return nil, err
	}
	return p, f.Close()
}

// remove removes the file, unless it has been moved, and its folder. The lock is released
// last, so that no other process works on the folder meanwhile.
func (p *partial) remove() {
	for _, ending := range []string{"", "-wal", "-shm", "-journal"} {
		os.Remove(p.path + ending)
	}
	os.Remove(filepath.Join(p.folder, partialLock))
	os.Remove(p.folder)
	p.held.Close()
	os.RemoveAll(p.folder) // for systems where a file cannot be removed while it is locked
}

// replace moves the complete file to its path, durably. It replaces a file at that path.
func (p *partial) replace(to string) error {
	if err := os.Rename(p.path, to); err != nil {
		return err
	}
	return platform.SyncDir(filepath.Dir(to))
}

// place moves the complete file to its path, durably, if the path has no file: os.ErrExist
// if it has one.
func (p *partial) place(to string) error {
	err := platform.RenameNew(p.path, to)
	if err == nil {
		err = platform.SyncDir(filepath.Dir(to))
	}
	return err
}

var partialName = regexp.MustCompile(`^\.(.+)\.partial-[0-9]+$`)

// RemovePartials removes from a folder the unfinished copies of backups and restores of
// this user that were killed, and returns their paths. Several goroutines and processes
// may call it.
func RemovePartials(folder string) (removed []string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil // the caller's own work in the folder will report why
	}
	for _, e := range entries {
		if name := partialName.FindStringSubmatch(e.Name()); name != nil && e.IsDir() {
			path := filepath.Join(folder, e.Name())
			if removePartial(path, name[1]) {
				removed = append(removed, path)
			}
		}
	}
	return removed
}

// removePartial removes one folder, if it is an abandoned partial.
func removePartial(folder, name string) bool {
	info, err := os.Lstat(folder)
	if err != nil || !platform.OnlyOurs(info) {
		return false
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return false
	}
	if len(entries) == 0 {
		return os.Remove(folder) == nil // if a process has only just made it, newPartial makes another
	}
	known := []string{partialLock, name, name + "-wal", name + "-shm", name + "-journal"}
	locked := false
	for _, e := range entries {
		if !e.Type().IsRegular() || !slices.Contains(known, e.Name()) {
			return false // it is not a partial
		}
		locked = locked || e.Name() == partialLock
	}
	if !locked {
		return false
	}
	held, err := lock.File(filepath.Join(folder, partialLock))
	if err != nil {
		return false
	}
	(&partial{folder, filepath.Join(folder, name), held}).remove()
	return true
}
