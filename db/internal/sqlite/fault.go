package sqlite

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Code returns SQLite's extended result code (https://sqlite.org/rescode.html) of
// err, or 0 if err is not one of SQLite's.
func Code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// ErrDamaged says that the rows of a file contradict each other, although SQLite finds no
// fault. It is fatal (IsFatal).
var ErrDamaged = errors.New("the database is damaged (relay check tells more)")

// IsFatal reports whether the process must stop after err. Either the content of the disk
// is unknown: after a failed fsync, a second one reports success without writing the lost
// pages. Or the disk accepts no writes, because the file system has become read-only. Or
// the file is damaged.
func IsFatal(err error) bool {
	if errors.Is(err, ErrDamaged) {
		return true
	}
	code := Code(err)
	switch code {
	case sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC, sqlite3.SQLITE_IOERR_WRITE,
		sqlite3.SQLITE_IOERR_TRUNCATE:
		return true
	}
	return code&0xff == sqlite3.SQLITE_CORRUPT || code&0xff == sqlite3.SQLITE_NOTADB
}

// IsNotDatabase reports whether err says that the file is not an SQLite database.
func IsNotDatabase(err error) bool { return Code(err)&0xff == sqlite3.SQLITE_NOTADB }

// IsCorrupt reports whether err says that SQLite found the file damaged.
func IsCorrupt(err error) bool { return Code(err)&0xff == sqlite3.SQLITE_CORRUPT }

// WantsLog reports whether err says that the file needs a log that SQLite cannot
// make, because the folder cannot be written.
func WantsLog(err error) bool {
	code := Code(err) & 0xff
	return code == sqlite3.SQLITE_CANTOPEN || code == sqlite3.SQLITE_READONLY
}

// IsDiskFull reports whether err says that nothing was written for lack of room: the disk is
// full, a quota is used up, the file may not grow (countNoRoom), or the index of the log
// cannot grow, for which SQLite has a code of its own.
func IsDiskFull(err error) bool {
	code := Code(err)
	return code&0xff == sqlite3.SQLITE_FULL || code == sqlite3.SQLITE_IOERR_SHMSIZE
}

// IsReadOnly reports whether err says that SQLite could only open the file for reading.
func IsReadOnly(err error) bool { return Code(err)&0xff == sqlite3.SQLITE_READONLY }

// IsBusy reports whether err says that another process kept the file locked for
// longer than a connection waits (10 s).
func IsBusy(err error) bool { return Code(err)&0xff == sqlite3.SQLITE_BUSY }

// IsOfMachine reports whether err lies with this machine: its disk, its memory,
// another process. Every other error depends on the statement and the data alone:
// a copy of the store with the same data gets the same error.
func IsOfMachine(err error) bool {
	switch Code(err) & 0xff {
	case sqlite3.SQLITE_PERM, sqlite3.SQLITE_ABORT, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH:
		return true
	}
	return IsFatal(err)
}

// OrNull returns v as an argument of Exec or Query: NULL for the zero value.
func OrNull[T int64 | string](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
