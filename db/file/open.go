package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Info has the marks in a database file that say which program wrote it.
type Info struct {
	Version     int64  // the schema version (PRAGMA user_version)
	application int64  // PRAGMA application_id
	empty       bool   // the file has no tables
	foreign     string // a trigger, view or table that is not the relay's, such as "trigger undo"
}

// OpenReadOnly opens the relay database at path, with or without a server running on
// it. It changes no byte of the file and leaves no other file. It refuses a path
// without a file, a file of another program, and a file of a newer relay; the errors
// name path. The caller closes the connection.
func OpenReadOnly(path string) (*sqlite.Conn, Info, error) {
	if err := MustExist(path); err != nil {
		return nil, Info{}, err
	}
	c, err := openSilently(path)
	if err != nil {
		return nil, Info{}, unreadable(path, err)
	}
	info, err := readInfo(c)
	if err != nil {
		err = unreadable(path, err)
	} else if err = info.mustBeRelays(path); err == nil {
		return c, info, nil
	}
	c.Close()
	return nil, info, err
}

// MustExist refuses a path that has no file, or cannot be a database. The error says
// what to do.
func MustExist(path string) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("no database at %s (relay serve makes one; --db names another)", path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder, not a database (--db names the file)", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case info.Size() == 0:
		return fmt.Errorf("%s is empty: it is not a relay database (--db names another)", path)
	}
	return nil
}

// MustBeRelays refuses the file at path if another program or a newer relay wrote it. It may be
// empty. Errors name the path.
func MustBeRelays(path string) error {
	_, err := relaysInfo(path)
	return err
}

// relaysInfo is infoAt for a file that MustBeRelays does not refuse.
func relaysInfo(path string) (info Info, err error) {
	if err := mustHaveOneName(path); err != nil {
		return info, fmt.Errorf("%s: %w", path, err)
	}
	if info, err = infoAt(path); err != nil {
		return info, unreadable(path, err)
	}
	_, err = info.steps(path, "")
	return info, err
}

// MustBeCurrent refuses a file of an older schema, which this program cannot read
// before an upgrade.
func (i Info) MustBeCurrent(path string) error {
	if i.Version < CurrentSchema() {
		return fmt.Errorf("%s was written by an older relay (schema %d; this one knows %d): relay serve brings it up to date",
			path, i.Version, CurrentSchema())
	}
	return nil
}

// mustBeRelays refuses an empty file and the files of other programs and newer relays.
func (i Info) mustBeRelays(path string) error {
	if i.empty && i.application == 0 {
		return fmt.Errorf("%s is empty: it is not a relay database (--db names another)", path)
	}
	_, err := i.steps(path, "")
	return err
}

// Explain puts an error of SQLite about the file at path, or ErrDamaged, into a sentence that begins
// with the path. It returns other errors unchanged, and errors that have the path.
func Explain(path string, err error) error {
	switch {
	case err == nil || strings.Contains(err.Error(), path):
		return err
	case errors.Is(err, sqlite.ErrDamaged):
		return fmt.Errorf("%s: %w", path, err)
	case sqlite.Code(err) != 0:
		return unreadable(path, err)
	}
	return err
}

// ofSource is Explain for the file from, if err says that its copy is damaged, since the damage is
// the source's. It returns other errors unchanged.
func ofSource(from string, err error) error {
	if sqlite.IsCorrupt(err) {
		return Explain(from, err)
	}
	return err
}

// unreadable puts err, the error of SQLite about a file, into a sentence that says
// what to do.
func unreadable(path string, err error) error {
	switch {
	case sqlite.IsNotDatabase(err):
		return fmt.Errorf("%s is not a database: %w", path, err)
	case sqlite.IsDiskFull(err):
		return fmt.Errorf("%s: its disk is full: make room: %w", path, err)
	case sqlite.IsCorrupt(err):
		return fmt.Errorf("%s is damaged (relay restore puts a backup in its place): %w", path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// IsDenied reports whether err, of opening a database, may come from a missing permission
// on one of its files or on its folder. SQLite does not report more.
func IsDenied(err error) bool { return errors.Is(err, os.ErrPermission) || sqlite.WantsLog(err) }

// openSilently opens a file for reading so that no other file stays behind. A file that
// is not in WAL mode, such as a backup, needs no log. If there is a journal, a process
// was killed while it wrote: the file is opened as Reading, since SQLite must first undo
// the unfinished transaction. A file whose log exists is opened as Watching, which leaves
// the log alone. A closed file in WAL mode has no log: SQLite makes one, and the last
// connection to close removes it. If the folder cannot be written, the file is opened as
// Frozen, since no other process can make a log either. The same holds if the log is
// empty and has no index, because no server has such a file open. A file in WAL mode that
// has several names is refused.
func openSilently(path string) (*sqlite.Conn, error) {
	logs, err := keepsLog(path)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if logs { // other names of a backup, which has no log, are harmless
		if err := mustHaveOneName(real); err != nil {
			return nil, err
		}
		if err := mustNotBeElsewhere(real); err != nil {
			return nil, err
		}
	}
	if !logs {
		if exists(real + "-journal") {
			return openAndRead(path, sqlite.Reading)
		}
		return openAndRead(path, sqlite.Watching)
	}
	if exists(real + "-wal") {
		c, err := openAndRead(path, sqlite.Watching)
		switch {
		case sqlite.IsDiskFull(err):
			return openUnindexed(path)
		case !sqlite.WantsLog(err):
		case isEmpty(real+"-wal") && !exists(real+"-shm"): // a server's log would have an index
			return openAndRead(path, sqlite.Frozen)
		default:
			err = fmt.Errorf("it has a log, %s-wal, which can only be read where its folder can be written: "+
				"copy both elsewhere (%w)", path, err)
		}
		return c, err
	}
	c, err := openAndRead(path, sqlite.Reading)
	if sqlite.IsDiskFull(err) {
		return openUnindexed(path)
	}
	if sqlite.WantsLog(err) {
		return openAndRead(path, sqlite.Frozen)
	}
	return c, err
}

// openUnindexed opens a file for reading if the disk has no room for the index of its log.
// SQLite then makes the index in memory, but only if the log and the file of the index
// exist. openUnindexed makes the missing ones, empty.
func openUnindexed(path string) (*sqlite.Conn, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	for _, ending := range []string{"-wal", "-shm"} {
		if err := Create(real + ending); err != nil {
			return nil, err
		}
	}
	return openAndRead(path, sqlite.Unindexed)
}

// OpenFull opens a file for reading, for a server whose disk is full, and makes its log
// durable. It refuses the files that OpenReadOnly refuses, and those of an older schema.
func OpenFull(path string) (*sqlite.Conn, error) {
	c, err := openUnindexed(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	info, err := readInfo(c)
	if err == nil {
		err = info.mustBeRelays(path)
	}
	if err == nil && info.Version < CurrentSchema() {
		err = fmt.Errorf("%s: its disk is full: make room, so that its schema can be brought up to date", path)
	}
	if err == nil {
		err = SyncLog(path)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// SyncLog makes the log of the database at path durable.
func SyncLog(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	_, err = sync(real + "-wal")
	return err
}

// openAndRead opens a file and reads from it, because most faults show only then.
func openAndRead(path string, r sqlite.Role) (*sqlite.Conn, error) {
	c, err := sqlite.Open(path, r)
	if err != nil {
		return nil, err
	}
	if _, err := c.Row(nil, "SELECT 1 FROM sqlite_schema"); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// keepsLog reads from a file's header whether it is in WAL mode:
// https://sqlite.org/fileformat.html#the_database_header
func keepsLog(path string) (bool, error) {
	var header [20]byte
	err := sqlite.ReadHeader(path, header[:])
	if errors.Is(err, io.EOF) {
		return false, nil // the file is too short for a database, which SQLite will say
	}
	return header[18] == 2 || header[19] == 2, err
}

// infoAt reads the Info of the file at path, which may be empty, without changing it.
func infoAt(path string) (info Info, err error) {
	c, err := openSilently(path)
	if err != nil {
		return info, err
	}
	defer c.Close()
	return readInfo(c)
}

// readInfo reads the Info of a file in one transaction, since another process may be
// creating the file. The connection must not be inside a transaction.
func readInfo(c *sqlite.Conn) (info Info, err error) {
	if err := c.Begin(); err != nil {
		return info, err
	}
	defer c.Rollback()
	if info.application, err = c.Number("PRAGMA application_id"); err != nil {
		return info, err
	}
	if info.Version, err = c.Number("PRAGMA user_version"); err != nil {
		return info, err
	}
	tables, err := c.Number("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return info, err
	}
	info.empty = tables == 0
	info.foreign, err = foreignPart(c)
	return info, err
}

// A Snapshot is a consistent snapshot of a file, for a command that only reads. While it
// is open, SQLite cannot reuse the WAL of a served file from its start, so the WAL grows. Close it
// soon.
type Snapshot struct {
	*sqlite.Conn
	Path string // absolute
	Info Info
}

// OpenSnapshot opens path as OpenReadOnly does. The end of ctx interrupts its queries.
func OpenSnapshot(ctx context.Context, path string) (*Snapshot, error) {
	c, info, err := OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Path: path, Conn: c, Info: info}
	c.Ctx = ctx
	if err = c.Begin(); err == nil {
		_, err = c.Row(nil, "SELECT 1 FROM sqlite_schema") // the first read fixes the snapshot
	}
	if err != nil {
		s.Close()
		return nil, unreadable(path, err)
	}
	return s, nil
}

// Close ends the snapshot and its connection.
func (s *Snapshot) Close() {
	s.Rollback()
	s.Conn.Close()
}

// exists reports whether a path has a file.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// isEmpty reports whether the file at path exists and is empty.
func isEmpty(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0
}

// ReadIDs reads the secret of a file and makes the IDs of that store. path is for
// error sentences.
func ReadIDs(c *sqlite.Conn, path string) (*relay.IDs, error) {
	var secret []byte
	_, err := c.Row(func(r *sqlite.Rows) { secret = r.Blob(0) }, "SELECT value FROM setting WHERE name = 'secret'")
	if err != nil {
		return nil, err
	}
	if len(secret) < 16 {
		return nil, fmt.Errorf("%s has no secret: it is not a relay database, or damaged", path)
	}
	return relay.NewIDs(secret)
}
