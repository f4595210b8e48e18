package sqlite

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Code gives SQLite's extended result code behind err, or 0.
func Code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// ErrDamaged is a file that contradicts itself where SQLite sees nothing wrong.
var ErrDamaged = errors.New("the database is damaged (relay check tells more)")

// IsFatal tells of the faults after which the process must not go on: what is
// on disk is no longer known, and a second fsync would lie (fsyncgate); or the
// disk takes no writes, as a file system that has become read-only.
func IsFatal(err error) bool {
	if errors.Is(err, ErrDamaged) {
		return true
	}
	code := Code(err)
	switch code {
	case sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE:
		return true
	}
	return code&0xff == sqlite3.SQLITE_CORRUPT || code&0xff == sqlite3.SQLITE_NOTADB
}

// IsNotDatabase tells that the file is not one of SQLite's.
func IsNotDatabase(err error) bool { return Code(err)&0xff == sqlite3.SQLITE_NOTADB }

// IsCorrupt tells that SQLite found the file damaged.
func IsCorrupt(err error) bool { return Code(err)&0xff == sqlite3.SQLITE_CORRUPT }

// WantsLog tells that the file needs a log where none can be made:
// the folder cannot be written.
func WantsLog(err error) bool {
	code := Code(err) & 0xff
	return code == sqlite3.SQLITE_CANTOPEN || code == sqlite3.SQLITE_READONLY
}

// IsDiskFull tells that nothing was written because there is no room.
func IsDiskFull(err error) bool { return Code(err)&0xff == sqlite3.SQLITE_FULL }

// IsReadOnly tells that SQLite could open the file for reading only.
func IsReadOnly(err error) bool { return Code(err)&0xff == sqlite3.SQLITE_READONLY }

// IsBusy tells that another process has locked the file for longer than we wait.
func IsBusy(err error) bool { return Code(err)&0xff == sqlite3.SQLITE_BUSY }

// IsOfMachine tells of the faults that lie with this machine: its disk, its
// memory, another process. Every other error depends on the statement and the data
// alone, and comes again wherever those are the same.
func IsOfMachine(err error) bool {
	switch Code(err) & 0xff {
	case sqlite3.SQLITE_PERM, sqlite3.SQLITE_ABORT, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH:
		return true
	}
	return IsFatal(err)
}

// OrNull binds the zero value as NULL.
func OrNull[T int64 | string](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
