package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// conn is one SQLite connection with its prepared statements. It goes around
// database/sql, whose pool, contexts and conversions cost more than a row does.
// A conn belongs to one goroutine at a time.
type conn struct {
	raw   driver.Conn
	stmts map[string]*stmt
	ctx   context.Context // nil; or that of a command, whose end interrupts queries: then close the conn
}

type stmt struct {
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	close func() error
	args  []driver.NamedValue // reused: bound values are copied by SQLite
	dest  []driver.Value
}

var processWide sync.Once

// A role says what a connection is for.
type role int

const (
	looking  role = iota // changes nothing, not even what kind of file it is
	watching             // the same, of a file with a log, which it leaves alone
	creating             // makes an empty file ours
	writing
	reading   // cannot write
	frozen    // of a file that nobody has open, where no log can be made
	receiving // an empty file that becomes a copy of another
)

// openConn opens path, which must exist.
func openConn(path string, r role) (*conn, error) {
	processWide.Do(func() {
		// Without it, any os.Open and Close of the file elsewhere in this process
		// drops SQLite's locks. Linux only; elsewhere POSIX locks remain.
		_, _ = sqlite.OFDLocking(true)
		sqlite.StrictPragmas(true)
	})
	connector, err := sqlite.NewConnector(dsn(path, r))
	if err != nil {
		return nil, err
	}
	raw, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	c := &conn{raw: raw, stmts: map[string]*stmt{}}
	if r == creating {
		// In this order: each decides how the next writes the first page.
		if err := c.script("PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL"); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// synchronous FULL is one fsync before each COMMIT returns: the 201's promise. It
// is a variable so that a test can link a relay that breaks the promise, to show
// that the loss would be seen.
var synchronous = "FULL"

func dsn(path string, r role) string {
	q := url.Values{
		"mode":          {"rw"}, // never create: createFile does, with the right permissions
		"_defensive":    {"1"},
		"_dqs":          {"0"},
		"_busy_timeout": {"10000"},
		"_synchronous":  {synchronous},
		"_pragma": {
			"trusted_schema(0)",
			"wal_autocheckpoint(0)", // checkpoint_sql.go does it, off the commit path
			"journal_size_limit(16777216)",
			"temp_store(2)",
			"cache_size(-8192)",
			"fullfsync(1)", // macOS: a plain fsync there does not survive a power cut
			"checkpoint_fullfsync(1)",
		},
	}
	switch r {
	case watching:
		q.Set("mode", "ro") // else the last one out copies the log, of a file that may not be ours
	case writing:
		q.Set("_journal_mode", "WAL")
	case reading:
		q.Set("_query_only", "1")
	case frozen:
		q.Set("mode", "ro")
		q.Set("immutable", "1")
	case receiving:
		q.Set("_synchronous", "OFF")                                // it is synced once, when it is whole
		q["_pragma"] = append(q["_pragma"], "journal_mode(MEMORY)") // no file beside it; OFF is not to be had with _defensive
	}
	p := filepath.ToSlash(path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // a Windows drive letter
	}
	return (&url.URL{Scheme: "file", Path: p, RawQuery: q.Encode()}).String()
}

func (c *conn) close() error {
	for _, s := range c.stmts {
		s.close()
	}
	return c.raw.Close()
}

func (c *conn) prepare(query string) (*stmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	s, err := c.raw.Prepare(query)
	if err != nil {
		return nil, err
	}
	st := &stmt{exec: s.(driver.StmtExecContext), query: s.(driver.StmtQueryContext), close: s.Close}
	c.stmts[query] = st
	return st, nil
}

func (s *stmt) bind(args []any) []driver.NamedValue {
	s.args = s.args[:0]
	for i, a := range args {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s.args
}

// exec runs a statement whose arguments are int64, string, []byte or nil.
// The background context is deliberate: a cancelled one would throw the connection away.
func (c *conn) exec(query string, args ...any) error {
	s, err := c.prepare(query)
	if err != nil {
		return err
	}
	_, err = s.exec.ExecContext(context.Background(), s.bind(args))
	return err
}

// rows is an open cursor: for r.next() {…}; err := r.close(). A statement has
// one cursor at a time.
type rows struct {
	rows driver.Rows
	dest []driver.Value
	err  error
}

func (c *conn) query(query string, args ...any) *rows {
	s, err := c.prepare(query)
	if err != nil {
		return &rows{err: err}
	}
	ctx := c.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	r, err := s.query.QueryContext(ctx, s.bind(args))
	if err != nil {
		return &rows{err: err}
	}
	if s.dest == nil {
		s.dest = make([]driver.Value, len(r.Columns()))
	}
	return &rows{rows: r, dest: s.dest}
}

func (r *rows) next() bool {
	if r.err != nil {
		return false
	}
	r.err = r.rows.Next(r.dest)
	return r.err == nil
}

func (r *rows) close() error {
	if r.rows != nil {
		if err := r.rows.Close(); r.err == nil || r.err == io.EOF && err != nil {
			r.err = err
		}
	}
	if r.err == io.EOF {
		return nil
	}
	return r.err
}

func (r *rows) int(i int) int64 { n, _ := r.dest[i].(int64); return n }

func (r *rows) null(i int) bool { return r.dest[i] == nil }

func (r *rows) text(i int) string { s, _ := r.dest[i].(string); return s }

func (r *rows) blob(i int) []byte { b, _ := r.dest[i].([]byte); return b }

// row runs a query of at most one row and calls scan on it; ok tells if there was one.
func (c *conn) row(scan func(*rows), query string, args ...any) (ok bool, err error) {
	r := c.query(query, args...)
	if r.next() {
		ok = true
		if scan != nil {
			scan(r)
		}
	}
	return ok, r.close()
}

// begin starts a transaction that sees one state of the file.
func (c *conn) begin() error { return c.exec("BEGIN") }

// beginWrite starts a transaction that may write: a later upgrade would fail at once.
func (c *conn) beginWrite() error { return c.exec("BEGIN IMMEDIATE") }

func (c *conn) commit() error { return c.exec("COMMIT") }

// rollback ends a transaction that has failed; SQLite may have ended it itself.
func (c *conn) rollback() { _ = c.exec("ROLLBACK") }

// script runs several statements without arguments.
func (c *conn) script(text string) error {
	r, err := c.raw.Prepare(text)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.(driver.StmtExecContext).ExecContext(context.Background(), nil)
	return err
}

// sqliteCode gives SQLite's extended result code behind err, or 0.
func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// errDamaged is a file that contradicts itself where SQLite sees nothing wrong.
var errDamaged = errors.New("the database is damaged (relay check tells more)")

// isFatal tells of the faults after which the process must not go on: what is
// on disk is no longer known, and a second fsync would lie (fsyncgate); or the
// disk takes no writes, as a file system that has become read-only.
func isFatal(err error) bool {
	if errors.Is(err, errDamaged) {
		return true
	}
	code := sqliteCode(err)
	switch code {
	case sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE:
		return true
	}
	return code&0xff == sqlite3.SQLITE_CORRUPT || code&0xff == sqlite3.SQLITE_NOTADB
}

func isDiskFull(err error) bool { return sqliteCode(err)&0xff == sqlite3.SQLITE_FULL }

// isReadOnly tells that SQLite could open the file for reading only.
func isReadOnly(err error) bool { return sqliteCode(err)&0xff == sqlite3.SQLITE_READONLY }

func isBusy(err error) bool { return sqliteCode(err)&0xff == sqlite3.SQLITE_BUSY }

// isOfMachine tells of the faults that lie with this machine: its disk, its
// memory, another process. Every other error depends on the statement and the data
// alone, and comes again wherever those are the same.
func isOfMachine(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_PERM, sqlite3.SQLITE_ABORT, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH:
		return true
	}
	return isFatal(err)
}

// orNull binds the zero value as NULL.
func orNull[T int64 | string](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
