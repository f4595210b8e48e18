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
)

// Progress is told how far a long command has come: done of total, in a unit
// of its own. It is called from the goroutine that does the work.
type Progress func(what string, done, total int64)

// BackupOptions says what to copy where. From, To and Schema are required.
type BackupOptions struct {
	From, To string
	Schema   string // the text of schema.sql
	Replace  bool   // an existing file at To
	// Unchecked leaves out the check of the copy: for a database that has faults already.
	Unchecked bool
	Progress  Progress // may be nil
}

// BackupResult says what was copied.
type BackupResult struct {
	Path     string // absolute
	Bytes    int64
	Messages int64
	Mechas   int64
	Faults   int           // found by the check; then there is no copy
	Copying  time.Duration // for so long the log of a served file could not start anew
	Checking time.Duration
}

// errFaults is returned with a BackupResult whose Faults says how many.
var errFaults = errors.New("the copy has faults")

// Backup copies a database, one state of it, while others may write to it, and
// checks the copy (Check) before it gets its name. So To is there whole, or as
// it was. The copy is a single file, 0600, and holds signing secrets like the
// database. The end of ctx ends it, and leaves nothing.
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
		// Looked at again: a copy takes its time, and what is no file must not be replaced.
		if info, err := os.Lstat(to); err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeSymlink == 0 {
			return result, fmt.Errorf("%s is no file", to)
		}
		return result, moveInto(temp, to)
	}
	// A link, unlike a rename, never replaces what somebody has put there meanwhile.
	if err := os.Link(temp, to); err != nil {
		if _, there := os.Lstat(to); there == nil {
			return result, errExists(to)
		}
		return result, moveInto(temp, to) // a file system without links
	}
	return result, sqlite.SyncDir(filepath.Dir(to))
}

// moveInto gives a whole file its name, durably.
func moveInto(temp, to string) error {
	if err := os.Rename(temp, to); err != nil {
		return err
	}
	return sqlite.SyncDir(filepath.Dir(to))
}

func errExists(path string) error {
	return fmt.Errorf("%s is there already: name another file, or replace it with --force", path)
}

// beside are the endings of the files that belong to a database.
var beside = []string{"-wal", "-shm", "-journal", ".lock", ".index"}

// paths gives the absolute paths, or says why nothing may be written to To.
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
	for _, ending := range beside {
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
		return "", "", fmt.Errorf("%s is no file", to)
	case !o.Replace:
		return "", "", errExists(to)
	}
	return from, to, nil
}

// copyChecked copies a database into a new file beside to, checks and syncs
// that, and gives its name. On an error nothing is left.
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
	if err = f.Sync(); err != nil { // SQLite wrote through a handle of its own: a sync is of the file
		return "", result, err
	}
	info, err := f.Stat()
	if err != nil {
		return "", result, err
	}
	result.Bytes = info.Size()
	return temp, result, nil
}

// IsFaulty tells that Backup or Restore refused because of what its check found.
func IsFaulty(err error) bool { return errors.Is(err, errFaults) }
