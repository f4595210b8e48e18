package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/ring"
)

// A Progress function is told how far a long command has come: done of total, in a
// unit that depends on the command. what is its present work, as in "copying". The
// goroutine that does the work calls it, so it must be quick.
type Progress func(what string, done, total int64)

// BackupOptions says which file to copy to which path. From, To and Schema are
// required.
type BackupOptions struct {
	From, To string
	Schema   string // the text of schema.sql
	Replace  bool   // replace an existing file at To; else that is an error
	// Unchecked leaves out the check of the copy. It is for a database that is known
	// to have faults.
	Unchecked bool
	Progress  Progress // may be nil
}

// BackupResult says what a Backup or Restore has copied.
type BackupResult struct {
	Path     string // the copy's absolute path
	Bytes    int64
	Messages int64
	Mechas   int64
	Faults   int           // how many the check found; if any, the copy was deleted
	Copying  time.Duration // for so long, SQLite could not restart the log of a served file
	Checking time.Duration
}

// errFaults comes with a BackupResult whose Faults is not 0.
var errFaults = errors.New("the copy has faults")

// Backup copies one state of a database, while other processes may write to it. It
// checks the copy (Check) before the copy gets its name, so To is complete or as it
// was before. The copy is a single file of mode 0600, with the same secrets as the
// database. If ctx ends, Backup stops and leaves no file. Errors name the path;
// IsFaulty tells whether the check found faults.
func Backup(ctx context.Context, o BackupOptions) (BackupResult, error) {
	from, to, err := o.paths()
	if err != nil {
		return BackupResult{}, err
	}
	temp, result, err := copyChecked(ctx, from, to, o)
	if err != nil {
		return result, err
	}
	defer os.Remove(temp)
	result.Path = to
	if o.Replace {
		// Checked again, since To may have changed while the copy was made: only a
		// regular file or a link to one may be replaced.
		if info, err := os.Lstat(to); err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeSymlink == 0 {
			return result, fmt.Errorf("%s is not a file", to)
		}
		return result, moveInto(temp, to)
	}
	// A link, unlike a rename, never replaces a file that another process has made meanwhile.
	if err := os.Link(temp, to); err != nil {
		if _, there := os.Lstat(to); there == nil {
			return result, errExists(to)
		}
		return result, moveInto(temp, to) // this file system has no links
	}
	return result, sqlite.SyncDir(filepath.Dir(to))
}

// moveInto gives a complete file its name, durably.
func moveInto(temp, to string) error {
	if err := os.Rename(temp, to); err != nil {
		return err
	}
	return sqlite.SyncDir(filepath.Dir(to))
}

func errExists(path string) error {
	return fmt.Errorf("%s exists already: name another file, or replace it with --force", path)
}

// companions are the endings of the files that belong to a database.
var companions = []string{"-wal", "-shm", "-journal", ring.Suffix, ".lock", ".index"}

// paths gives the absolute paths, or the reason why the copy may not be written to To.
func (o BackupOptions) paths() (from, to string, err error) {
	if from, err = filepath.Abs(o.From); err != nil {
		return "", "", err
	}
	if to, err = filepath.Abs(o.To); err != nil {
		return "", "", err
	}
	if err := MustExist(from); err != nil {
		return "", "", err
	}
	for _, ending := range companions {
		if strings.HasSuffix(to, ending) {
			return "", "", fmt.Errorf("%s would be taken for a part of a database: choose a name that does not end in %s", to, ending)
		}
		if _, err := os.Lstat(to + ending); err == nil {
			return "", "", fmt.Errorf("%s belongs to a database at %s: choose another name for the copy", to+ending, to)
		}
	}
	target, err := os.Stat(to)
	if err != nil {
		parent, err := os.Stat(filepath.Dir(to))
		if err == nil && !parent.IsDir() || errors.Is(err, os.ErrNotExist) {
			return "", "", fmt.Errorf("there is no directory %s: make it first", filepath.Dir(to))
		}
		return from, to, err
	}
	source, err := os.Stat(from)
	switch {
	case err != nil:
		return "", "", err
	case os.SameFile(source, target):
		return "", "", fmt.Errorf("%s is the database itself: choose another file for the copy", to)
	case target.IsDir():
		return "", "", fmt.Errorf("%s is a directory: name a file in it", to)
	case !target.Mode().IsRegular():
		return "", "", fmt.Errorf("%s is not a file", to)
	case !o.Replace:
		return "", "", errExists(to)
	}
	return from, to, nil
}

// copyChecked copies a database into a new file in the folder of to, checks and syncs
// it, and returns its name. After an error it leaves no file.
func copyChecked(ctx context.Context, from, to string, o BackupOptions) (_ string, result BackupResult, err error) {
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".partial-*") // 0600
	if err != nil {
		return "", result, err
	}
	temp := f.Name()
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(temp)
		}
	}()
	began := time.Now()
	if result, err = copyPages(ctx, from, temp, o.Progress); err != nil {
		return "", result, err
	}
	result.Copying = time.Since(began)
	if !o.Unchecked {
		found, err := Check(ctx, CheckOptions{Path: temp, Schema: o.Schema, Progress: o.Progress})
		if err == nil && found.Faults > 0 {
			err = errFaults
		}
		result.Faults, result.Checking = found.Faults, found.Took
		if err != nil {
			return "", result, err
		}
	}
	if err = f.Sync(); err != nil { // SQLite wrote through its own handle, but a sync is of the whole file
		return "", result, err
	}
	info, err := f.Stat()
	if err != nil {
		return "", result, err
	}
	result.Bytes = info.Size()
	return temp, result, nil
}

// IsFaulty tells whether err says that Backup or Restore refused a copy in which the
// check found faults.
func IsFaulty(err error) bool { return errors.Is(err, errFaults) }
