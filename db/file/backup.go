package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"relay/db/relay"
	"relay/db/ring"
)

// A Progress function receives the progress of a long command: done of total, in a unit
// that depends on the command. The argument what names the present work, as in "copying".
// The goroutine that does the work calls the function, so it must be quick.
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
	Quick     bool                // leave out the checks that CheckOptions.Quick leaves out
	Between   func(time.Duration) // called between two pieces of the copying, with the duration of one; may be nil
	Progress  Progress            // may be nil
}

// BackupResult says what a Backup or Restore has copied.
type BackupResult struct {
	Path     string // the copy's absolute path
	Bytes    int64
	Messages int64
	Mechas   int64
	Last     relay.Position // of the last write in the copy; 0 if it has none
	Faults   int            // how many the check found; if any, the copy was deleted
	Copying  time.Duration  // how long SQLite could not restart the log of a served file
	Checking time.Duration
}

// errFaults comes with a BackupResult whose Faults is not 0.
var errFaults = errors.New("the copy has faults")

// sourceError is an error of the file that is copied, not of another file.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

// Backup copies a consistent snapshot of a database, while other processes may write to
// it. It checks the copy (Check) before the copy gets its name, so To is complete or
// unchanged. The copy is a single file of mode 0600, with the same secrets as the
// database. If ctx ends, Backup stops and leaves no file. Errors name the path; IsFaulty
// reports whether the check found faults.
func Backup(ctx context.Context, o BackupOptions) (BackupResult, error) {
	from, to, err := o.paths()
	if err != nil {
		return BackupResult{}, err
	}
	p, result, err := copyChecked(ctx, from, to, o)
	if err != nil {
		return result, err
	}
	defer p.remove()
	result.Path = to
	if o.Replace {
		// Checked again, since To may have changed while the copy was made: only a
		// regular file or a link to one may be replaced.
		if info, err := os.Lstat(to); err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeSymlink == 0 {
			return result, fmt.Errorf("%s is not a file", to)
		}
		return result, p.replace(to)
	}
	err = p.place(to)
	if errors.Is(err, os.ErrExist) {
		err = errExists(to)
	}
	return result, err
}

func errExists(path string) error {
	return fmt.Errorf("%s exists already: name another file, or replace it with --force", path)
}

// companions are the endings of the files that belong to a database.
var companions = []string{"-wal", "-shm", "-journal", ring.Suffix, ".lock", ".admin.sock", ".index"}

// companionEnding returns the ending by which a path belongs to a database, or "".
func companionEnding(path string) string {
	for _, ending := range companions {
		if strings.HasSuffix(path, ending) {
			return ending
		}
	}
	return ""
}

// paths returns the absolute paths, or the reason why the copy may not be written to To.
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
	if ending := companionEnding(to); ending != "" {
		return "", "", fmt.Errorf("%s would be taken for a part of a database: choose a name that does not end in %s",
			to, ending)
	}
	for _, ending := range companions {
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

// copyChecked copies a database into a new file next to to, checks and syncs it. After an
// error it leaves no file.
func copyChecked(ctx context.Context, from, to string, o BackupOptions) (_ *partial, result BackupResult, err error) {
	p, err := newPartial(to)
	if err != nil {
		return nil, result, err
	}
	defer func() {
		if err != nil {
			p.remove()
		}
	}()
	began := time.Now()
	if result, err = copyPages(ctx, from, p.path, o); err != nil {
		return nil, result, err
	}
	result.Copying = time.Since(began)
	if !o.Unchecked {
		found, err := Check(ctx, CheckOptions{Path: p.path, Schema: o.Schema, Quick: o.Quick, Progress: o.Progress})
		if err == nil && found.Faults > 0 {
			err = errFaults
		}
		result.Faults, result.Checking = found.Faults, found.Took
		if err != nil {
			return nil, result, err
		}
	}
	result.Bytes, err = sync(p.path)
	return p, result, err
}

// sync makes the content of a file durable, and returns its size.
func sync(path string) (bytes int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // Windows syncs only files that may be written
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// IsFaulty reports whether err says that Backup or Restore refused a copy in which the
// check found faults.
func IsFaulty(err error) bool { return errors.Is(err, errFaults) }

// IsUnusable reports whether err, of Restore, says that the backup cannot be restored, so that
// another backup may do: it has faults, cannot be read, or is not a relay database. A backup
// that another version of relay wrote is usable by that version.
func IsUnusable(err error) bool {
	return IsFaulty(err) || errors.As(err, new(sourceError)) && !IsOfAnotherVersion(err)
}

// IsOfAnotherVersion reports whether err says that another version of relay wrote the file. That version
// can read it.
func IsOfAnotherVersion(err error) bool { return errors.As(err, new(versionError)) }
