package db

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const applicationID = 0x524c4159 // "RLAY", in the file's header

// upgrades[n] brings a file of user_version n+1 to n+2. schema.sql is what they
// all lead to. A step that has been released is never changed.
var upgrades []string

// currentSchema is the user_version of the files that this program writes.
func currentSchema() int64 { return 1 + int64(len(upgrades)) }

// createFile makes an empty file that only its owner can read, and makes its
// name durable. It does nothing if there is one.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// fileInfo is what a file says of itself.
type fileInfo struct {
	app, version int64
	empty        bool // has no tables
}

// openCurrent opens the file for writing and brings its schema up to date: all
// of schema.sql for a new one, the missing steps for an older one, in one
// transaction. A file that is not ours, or newer, is refused untouched, and so is
// an older one that is being served, for its server would fail: locked says that
// the caller has the server's lock.
func openCurrent(path, schema string, locked bool) (*conn, error) {
	info, err := look(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := info.steps(path, schema); err != nil {
		return nil, err
	}
	isCurrent := info.app == applicationID && info.version == currentSchema()
	if !isCurrent && !info.empty && !locked {
		lock, err := lockToUpgrade(path)
		if err != nil {
			return nil, err
		}
		defer lock.Close()
	}
	r := writing
	if info.empty {
		r = creating
	}
	c, err := openPatiently(path, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if isCurrent {
		return c, nil
	}
	if err := migrate(c, path, schema); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// lockToUpgrade takes the server's lock; another command may have it for a moment.
func lockToUpgrade(path string) (*os.File, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	for tries := 0; ; tries++ {
		lock, err := lockFile(real + ".lock")
		if !errors.Is(err, errLocked) {
			return lock, err
		}
		if tries == lockTries {
			return nil, fmt.Errorf("%s is being served by an older relay: stop that first, then relay serve of this one brings the file up to date", path)
		}
		time.Sleep(openPause)
	}
}

// look reads what a file is, without changing a byte of it.
func look(path string) (info fileInfo, err error) { return lookAs(path, lookingRole(path, looking)) }

func lookAs(path string, r role) (info fileInfo, err error) {
	c, err := openConn(path, r)
	if err != nil {
		return info, err
	}
	defer c.close()
	if err := c.begin(); err != nil { // one state: another process may just be making it
		return info, err
	}
	info, err = readInfo(c)
	c.rollback()
	return info, err
}

// lookingRole is watching for a file with a log, else r.
func lookingRole(path string, r role) role {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		if log, err := os.Stat(real + "-wal"); err == nil && log.Size() > 0 {
			return watching
		}
	}
	return r
}

func readInfo(c *conn) (info fileInfo, err error) {
	if _, err = c.row(func(r *rows) { info.app = r.int(0) }, "PRAGMA application_id"); err != nil {
		return info, err
	}
	if _, err = c.row(func(r *rows) { info.version = r.int(0) }, "PRAGMA user_version"); err != nil {
		return info, err
	}
	_, err = c.row(func(r *rows) { info.empty = r.int(0) == 0 }, "SELECT count(*) FROM sqlite_schema")
	return info, err
}

// openPatiently opens a file that other processes may be opening for the first
// time: SQLite does not wait when two want to switch it to WAL.
func openPatiently(path string, r role) (*conn, error) {
	for tries := 0; ; tries++ {
		c, err := openConn(path, r)
		if err == nil || !isBusy(err) || tries == openTries {
			return c, err
		}
		time.Sleep(openPause)
	}
}

const (
	openTries = 200
	lockTries = 40
	openPause = 25 * time.Millisecond
)

func migrate(c *conn, path, schema string) error {
	if err := c.beginWrite(); err != nil {
		return err
	}
	if err := migrateTx(c, path, schema); err != nil {
		c.rollback()
		return err
	}
	return c.commit()
}

func migrateTx(c *conn, path, schema string) error {
	info, err := readInfo(c) // again, under the lock: another process may have been faster
	if err != nil {
		return err
	}
	steps, err := info.steps(path, schema)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := c.script(step); err != nil {
			return fmt.Errorf("%s: schema: %w", path, err)
		}
	}
	if info.app == 0 {
		secret := make([]byte, 32)
		rand.Read(secret) // never fails (crypto/rand)
		if err := c.exec("INSERT INTO setting (name, value) VALUES ('secret', ?), ('keys_version', 0), ('indexed_upto', 0)", secret); err != nil {
			return err
		}
	}
	return c.script(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, currentSchema()))
}

// steps gives the scripts that bring such a file to the current schema, or refuses it.
func (i fileInfo) steps(path, schema string) ([]string, error) {
	switch {
	case i.app == applicationID && i.version > currentSchema():
		return nil, fmt.Errorf("%s was written by a newer relay (schema %d; this one knows %d): use that one, or a newer one",
			path, i.version, currentSchema())
	case i.app == applicationID && i.version >= 1:
		return upgrades[i.version-1:], nil
	case i.app != 0 || i.version != 0 || !i.empty:
		return nil, fmt.Errorf("%s is a database, but not relay's", path)
	}
	return []string{schema}, nil
}
