package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"relay/db/internal/platform"
	"relay/db/lock"
	"relay/db/relay"
)

// SQLite finds the log of a database, and this package its lock, by the database's name.
// Two processes that open one file under two names have two logs, and each damages the
// writes of the other. Symbolic links do no harm, since they are resolved. Hard links and
// mounts of a single file cannot be resolved, so a file that has them is refused.

// mustHaveOneName refuses a file that is itself a mount point, or has several hard links. The
// error does not name the path. A missing file is not refused.
func mustHaveOneName(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if platform.IsMountPoint(real) {
		return fmt.Errorf("this file is itself a mount point. Its log would be on one side of the mount only, "+
			"and a process on the other side would damage the database: mount its folder instead, as in docker -v ./data:%s",
			filepath.Dir(real))
	}
	links, err := platform.Links(real)
	if err != nil || links < 2 {
		return err
	}
	return manyNames(real, links)
}

// manyNames is the error for a file with several names. It lists the names in the same
// folder, and says how to remove them.
func manyNames(real string, links int) error {
	others := otherNames(real)
	words := make([]string, len(others))
	for i, other := range others {
		words[i] = relay.ShellWord(other)
	}
	how := fmt.Sprintf("find the others, as with find / -xdev -samefile %s, and remove them (the file itself stays)",
		relay.ShellWord(real))
	if len(others) > 0 && len(others) == links-1 {
		how = fmt.Sprintf("remove the other name (the file itself stays): rm %s", strings.Join(words, " "))
	} else if len(others) > 0 {
		how = fmt.Sprintf("the same folder has %s; %s", strings.Join(words, " "), how)
	}
	if len(others) > 0 && strings.Contains(others[0], keptMark) {
		how = "a relay restore that was killed has left the other. " + strings.ToUpper(how[:1]) + how[1:]
	}
	return fmt.Errorf("this file has %d names (hard links), and a process that opens it by another name would "+
		"damage it: %s", links, how)
}

// otherNames returns the other paths of the file in its folder.
func otherNames(real string) (others []string) {
	info, err := os.Stat(real)
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir(filepath.Dir(real))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(filepath.Dir(real), e.Name())
		if there, err := os.Lstat(path); err == nil && path != real && os.SameFile(info, there) {
			others = append(others, path)
		}
	}
	return others
}

// Locked is the lock of a database: no other process can serve, restore or rebuild the
// database before Close or the end of this process.
type Locked struct {
	name, inode *lock.Held
	made        string // the file of the name, if Lock has made it
}

// Lock locks the database at path by its name, with path + ".lock", and on Linux by the
// file itself as well. The error is lock.ErrHeld if another process has the lock of the
// name. Other errors name the path: the file is in use under another name, or
// mustHaveOneName refuses it. Close the lock after the last connection to the database.
// Any goroutine may call it.
func Lock(path string) (*Locked, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		real, err = path, nil
	}
	if err != nil {
		return nil, err
	}
	if err := mustHaveOneName(real); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	made := ""
	if !exists(real + ".lock") {
		made = real + ".lock"
	}
	name, err := lockName(real)
	if err != nil {
		return nil, err
	}
	if !exists(real) {
		if made != "" { // as Create does with the database
			platform.GiveToOwnerOf(filepath.Dir(real), made)
		}
		return &Locked{name: name}, nil
	}
	if made != "" {
		if err := Share(made, real); err != nil {
			return nil, errors.Join(err, name.Close())
		}
	}
	inode, err := lockInode(real)
	if err == nil {
		return &Locked{name, inode, made}, nil
	}
	name.Close()
	if errors.Is(err, lock.ErrHeld) {
		err = fmt.Errorf("%s: %w", path, errElsewhere)
	}
	return nil, err
}

// Close releases the locks. The lock of the name goes last, so that the next process that
// gets it finds the file free.
func (l *Locked) Close() error { return errors.Join(l.inode.Close(), l.name.Close()) }

// Leave is Close. Without keep, it removes the lock's file if it did not exist before.
func (l *Locked) Leave(keep bool) error {
	if l.made != "" && !keep {
		os.Remove(l.made) // not on Windows, where an open file stays
	}
	return l.Close()
}

// errElsewhere refuses a file that is itself locked, while nobody has the lock of its name.
var errElsewhere = errors.New("another process has locked this file by another name, perhaps through a mount: " +
	"use the same name, or end that process first")

// lockName locks the name of a file. It tries a few times, because a process that only
// checks the lock, such as a console, has it for a moment.
func lockName(real string) (*lock.Held, error) {
	for tries := 0; ; tries++ {
		held, err := lock.File(real + ".lock")
		if !errors.Is(err, lock.ErrHeld) || tries == 3 {
			return held, err
		}
		time.Sleep(openPause)
	}
}

// Share lets everyone who may write the database at path write the file made, too.
func Share(made, path string) error {
	info, err := os.Stat(path)
	if err == nil {
		err = os.Chmod(made, info.Mode().Perm()&0o666)
	}
	platform.GiveToOwnerOf(path, made)
	return err
}

const (
	lockTries = 40
	openPause = 25 * time.Millisecond
)

// lockInode locks the file itself. It tries for a second, because a command that only
// checks the lock has it for a moment.
func lockInode(real string) (*lock.Held, error) {
	for tries := 0; ; tries++ {
		held, err := lock.Inode(real)
		if !errors.Is(err, lock.ErrHeld) || tries == lockTries {
			return held, err
		}
		time.Sleep(openPause)
	}
}

// mustNotBeElsewhere refuses a file that another process has locked under another name:
// then the file itself is locked, but its name is not. It checks more than once, because
// a server that starts or stops has only one of its two locks for a moment. The error
// does not name the path.
func mustNotBeElsewhere(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for range 3 {
		if held, err := lock.IsHeld(real); err != nil || !held {
			return nil // SQLite says why a file cannot be read
		}
		if held, err := lock.IsHeld(real + ".lock"); held || err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil
		}
		time.Sleep(openPause)
	}
	return errElsewhere
}
