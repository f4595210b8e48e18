package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"relay/db/internal/platform"
	"relay/db/internal/sqlite"
	"relay/db/lock"
	"relay/db/relay"
)

// RestoreOptions says which backup replaces which database.
type RestoreOptions struct {
	BackupOptions
	// RevokeNewer ends the keys of the backup that the replaced database has revoked or
	// rotated since. Restore refuses if there is no database to replace, or if its keys
	// cannot be read.
	RevokeNewer bool
	// By is who restores, for the audit log. With the zero Actor, nothing is noted.
	By relay.Actor
}

// RestoreResult says what a Restore has done.
type RestoreResult struct {
	BackupResult
	Kept string // the new path of the file that was replaced, or ""
	// Revived has the keys that the replaced database had ended, but the backup has not.
	// With RevokeNewer, Restore has ended them in the restored database, too. Without it,
	// they work again.
	Revived []RevivedKey
	// KeysUnread says why the keys of the replaced database could not be read, so that
	// Revived is empty. It is nil if they were read, or if no database was replaced.
	KeysUnread error
}

// Restore puts a checked copy of the backup From at To, the path of the database. If To exists, Restore
// refuses; with Replace, it keeps that file under another name. It always refuses while a server runs on To.
// To is complete or unchanged. If ctx ends, Restore stops. The caller must remove the search index next to
// To, because it belongs to the old file. The file of used nonces stays, because a nonce that was used on the
// old file must be refused on the new one, too. The backup of a cluster's node is restored unchanged, because
// the log supplies what came after it. If root restores, the new file gets the owner of the replaced one.
// Errors name the path; IsFaulty reports whether the check found faults.
func Restore(ctx context.Context, o RestoreOptions) (result RestoreResult, err error) {
	from, to, err := o.restorePaths()
	if err != nil {
		return result, err
	}
	if exists(to + ".lock") { // tried before the copy, so that a refusal comes at once
		held, err := lockForRestore(to)
		if err != nil {
			return result, err
		}
		held.Close()
	} else if err := mustHaveOneName(to); err != nil {
		return result, fmt.Errorf("%s: %w", to, err)
	}
	p, copied, err := copyChecked(ctx, from, to, o.BackupOptions)
	result.BackupResult = copied
	if err != nil {
		return result, err
	}
	defer p.remove()
	held, err := lockForRestore(to)
	if err != nil {
		return result, err
	}
	defer held.Close()
	_, follows, err := ReplicaAt(p.path)
	if err != nil {
		return result, err
	}
	switch {
	case follows && o.RevokeNewer:
		return result, fmt.Errorf("%s follows a log, which brings the revocations since: leave out --revoke-newer", from)
	case !follows: // else only this copy would have the changes
		if err := o.change(p.path, to, from, copied.Last, &result); err != nil {
			return result, ofSource(from, err)
		}
	}
	platform.GiveToOwnerOf(to, p.path) // of the one that it will replace
	if result.Kept, err = setAside(to, o.Replace); err != nil {
		return result, err
	}
	result.Path = to
	return result, p.replace(to)
}

// change prepares the copy to replace the database at to: the keys that have ended since,
// the positions that may have been used, and the audit log.
func (o RestoreOptions) change(copied, to, from string, last relay.Position, result *RestoreResult) error {
	if err := o.compareKeys(copied, to, result); err != nil {
		return err
	}
	if err := skipLost(copied, to, last, time.Now()); err != nil {
		return err
	}
	return keepAudit(copied, to, o.By, from)
}

// compareKeys finds the keys of the copy that the database at to has ended. With
// RevokeNewer, it ends them in the copy.
func (o RestoreOptions) compareKeys(copied, to string, result *RestoreResult) error {
	if !exists(to) || isEmpty(to) {
		if o.RevokeNewer {
			return fmt.Errorf("there is no database at %s whose revocations could be kept: leave out --revoke-newer", to)
		}
		return nil
	}
	ended, err := endedKeys(to)
	if err != nil && o.RevokeNewer {
		return fmt.Errorf("cannot read the keys of the existing database; nothing was changed; "+
			"omit --revoke-newer to replace it anyway: %w", err)
	}
	if err != nil {
		result.KeysUnread = err
		return nil
	}
	result.Revived, err = revivedKeys(copied, ended, o.RevokeNewer, time.Now())
	return err
}

// restorePaths returns the absolute paths, or the reason why they are refused. Links in
// To are resolved.
func (o BackupOptions) restorePaths() (from, to string, err error) {
	if from, err = filepath.Abs(o.From); err != nil {
		return "", "", err
	}
	if to, err = filepath.Abs(o.To); err != nil {
		return "", "", err
	}
	if err := MustExist(from); err != nil {
		return "", "", sourceError{err}
	}
	if real, err := filepath.EvalSymlinks(to); err == nil {
		to = real
	}
	if ending := companionEnding(to); ending != "" {
		return "", "", fmt.Errorf("%s would be taken for a part of a database: choose a name that does not end in %s",
			to, ending)
	}
	target, err := os.Stat(to)
	if errors.Is(err, os.ErrNotExist) {
		if exists(to+"-wal") && !o.Replace { // SQLite would apply the log to the restored file
			return "", "", fmt.Errorf("%s exists without its database: set both aside with --force", to+"-wal")
		}
		if parent, err := os.Stat(filepath.Dir(to)); err != nil || !parent.IsDir() {
			return "", "", fmt.Errorf("there is no directory %s: make it first", filepath.Dir(to))
		}
		return from, to, nil
	}
	source, sourceErr := os.Stat(from)
	switch {
	case err != nil || sourceErr != nil:
		return "", "", errors.Join(err, sourceErr)
	case os.SameFile(source, target):
		return "", "", fmt.Errorf("%s is the database itself: name the backup", from)
	case !target.Mode().IsRegular():
		return "", "", fmt.Errorf("%s is not a file", to)
	case !o.Replace:
		return "", "", fmt.Errorf("there is a database at %s: restore to another place with --db, "+
			"or replace it with --force, which keeps it under another name", to)
	}
	return from, to, nil
}

// lockForRestore takes the server's lock. The caller closes it.
func lockForRestore(to string) (held *Locked, err error) {
	if err = undoSetAside(to); err == nil {
		held, err = Lock(to)
	}
	if errors.Is(err, lock.ErrHeld) {
		return nil, fmt.Errorf("a server runs on %s, or another command works on it: end that first", to)
	}
	return held, err
}

// undoSetAside undoes setAside after a restore that was killed before it replaced the
// file: the file's second name, and that of its log.
func undoSetAside(path string) error {
	made := !exists(path + ".lock")
	held, err := lock.File(path + ".lock") // so that no restore is at work
	if err != nil {
		return err
	}
	defer held.Close()
	if made && exists(path) {
		if err := Share(path+".lock", path); err != nil {
			return err
		}
	}
	for _, kept := range otherNames(path) {
		if !strings.HasPrefix(kept, path+keptMark) {
			continue
		}
		if err := os.Rename(kept+"-wal", path+"-wal"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Remove(kept); err != nil {
			return err
		}
	}
	return nil
}

// keptMark is the part before the time in the name of a file that a restore has replaced.
const keptMark = ".before-restore-"

// setAside links the file at path under a second name, and renames its log. The file
// keeps its first name until the caller's rename replaces it, so that there is a database
// at every moment.
func setAside(path string, replace bool) (kept string, err error) {
	there := exists(path)
	if there && !replace {
		return "", fmt.Errorf("%s was just created: inspect it first", path)
	}
	if there {
		if err := leaveLog(path); err != nil {
			return "", err
		}
	}
	if !there && !exists(path+"-wal") {
		return "", nil
	}
	kept = path + keptMark + time.Now().UTC().Format("20060102T150405.000Z")
	if there {
		if err := os.Link(path, kept); err != nil {
			if err := os.Rename(path, kept); err != nil { // this file system has no links
				return "", err
			}
		}
	}
	if err := os.Rename(path+"-wal", kept+"-wal"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := os.Remove(path + "-shm"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return kept, platform.SyncDir(filepath.Dir(path))
}

// leaveLog copies the log into the file and switches WAL off. It fails if another command
// has the file open, because the writes of that command would be lost. A file that is too
// damaged to be opened is left unchanged, since a restore is meant for it.
func leaveLog(path string) error {
	c, err := sqlite.Open(path, sqlite.Writing)
	if err == nil {
		// SQLite switches WAL off only if no other process has the file open.
		_, err = c.Row(nil, "PRAGMA journal_mode = DELETE")
		if closed := c.Close(); err == nil {
			err = closed
		}
	}
	if sqlite.IsBusy(err) {
		return fmt.Errorf("another command has %s open: try again when it has ended", path)
	}
	if err != nil && !sqlite.IsFatal(err) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
