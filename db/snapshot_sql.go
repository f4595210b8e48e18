package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A snapshot is one state of a file, for a command that only reads: it makes
// no file that stays, changes no byte, and works beside a server. While it is
// open SQLite cannot start the log of a served file anew, so close it soon.
type snapshot struct {
	c    *conn
	path string // absolute
	info fileInfo
}

// openSnapshot opens path, which must be a relay database that this program
// knows. The errors name the absolute path. The end of ctx ends its queries.
func openSnapshot(ctx context.Context, path string) (*snapshot, error) {
	s := &snapshot{path: path}
	if err := mustBeFile(path); err != nil {
		return nil, err
	}
	var err error
	if s.c, err = openSilently(path); err != nil {
		return nil, unreadable(path, err)
	}
	s.c.ctx = ctx
	if err = s.c.begin(); err == nil {
		s.info, err = readInfo(s.c) // the first read fixes what is seen
	}
	switch {
	case err != nil:
		err = unreadable(path, err)
	case s.info.empty:
		err = fmt.Errorf("%s is an empty database: relay serve fills it", path)
	default:
		_, err = s.info.steps(path, "")
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *snapshot) close() {
	s.c.rollback()
	s.c.close()
}

// mustBeFile refuses what is not there, or is no file.
func mustBeFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("no database at %s: name the file (relay serve makes a new one)", path)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file", path)
	}
	return nil
}

// unreadable says what can be done about a file that SQLite cannot read.
func unreadable(path string, err error) error {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%s is not a database: %w", path, err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%s is damaged (relay restore puts a backup in its place): %w", path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// openSilently opens a file so that nothing stays behind. Which way depends on
// the file: one without a log (a backup) is read as it is; one with a log is
// only watched; one that had a log, but was closed, gets one for the time,
// which the last one out removes, or none where the directory cannot be
// written, for then nobody else can make one either.
func openSilently(path string) (*conn, error) {
	logs, err := keepsLog(path)
	if err != nil {
		return nil, err
	}
	if !logs {
		return openConn(path, watching)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(real + "-wal"); err == nil {
		return openConn(path, watching)
	}
	c, err := openConn(path, reading)
	if err == nil {
		if _, err = c.row(nil, "SELECT 1 FROM sqlite_schema"); err == nil {
			return c, nil
		}
		c.close()
	}
	if wantsLog(err) {
		return openConn(path, frozen)
	}
	return nil, err
}

// keepsLog reads from a file's header whether it is in WAL mode:
// https://sqlite.org/fileformat.html#the_database_header
func keepsLog(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var header [20]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		return false, nil // too short for a database: SQLite says it better
	}
	return header[18] == 2 || header[19] == 2, nil
}

// number reads one integer; 0 if there is no row.
func (c *conn) number(query string, args ...any) (n int64, err error) {
	_, err = c.row(func(r *rows) { n = r.int(0) }, query, args...)
	return n, err
}

// openMemory opens an empty database that is nowhere.
func openMemory() (*conn, error) {
	connector, err := sqlite.NewConnector("file::memory:?_dqs=0")
	if err != nil {
		return nil, err
	}
	raw, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	return &conn{raw: raw, stmts: map[string]*stmt{}}, nil
}
