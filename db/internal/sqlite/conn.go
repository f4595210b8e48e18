// Package sqlite gives the store its connections to SQLite: statements, transactions,
// checkpoints, and copies of a database. It uses the driver without database/sql:
// BenchmarkRows shows that a query of one row then takes 21 % less CPU, and one of a hundred
// rows 18 % less.
//
// On Unix, SQLite writes by our own pwrite, which countNoRoom installs by unsafe pointers. By
// BenchmarkWrite, that costs less than 0.1 µs a page. The gain is that a server keeps running
// when a quota is used up or a file may not grow. SQLite alone reports these as I/O errors, after
// which the process must stop. TestAFileThatMayNotGrowIsAFullDisk fails when an upgrade changes
// either.
//
// A Role sets how Open opens a file: page size, WAL, fsync (PRAGMA synchronous =
// FULL), timeouts. The functions from IsFatal to IsOfMachine say what an error of
// SQLite means to a store.
//
// The package knows nothing of the relay's tables. Packages db and db/file use it;
// no package outside db can.
package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
)

// Conn is one SQLite connection with its prepared statements. One goroutine at a time may use
// a Conn.
type Conn struct {
	raw   driver.Conn
	stmts map[string]*stmt
	locks bool // in a write transaction or a checkpoint (WithoutLocks)
	// Until is the time at which queries must end, with ErrTooLong, unless zero.
	Until time.Time
	// Ctx interrupts the queries of a command when it ends. After that, the Conn can only
	// be closed. If nil, queries are never interrupted.
	Ctx  context.Context
	file *connectedFile
	// first has the settings that precede the first statement. They make SQLite read the
	// schema, which costs more than the rest of an open, and many connections are never
	// used.
	first string
}

type stmt struct {
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	close func() error
	args  []driver.NamedValue // reused, since SQLite copies bound values
	dest  []driver.Value
}

var processWide sync.Once

// A Role is the purpose of a connection.
type Role int

// The roles of connections.
const (
	Watching Role = iota // reads, and never copies or removes the log: for a file that may be served
	Creating             // turns an empty file into a database with WAL
	Writing              // reads and writes
	Reading              // reads, with a log, which it copies and removes if it closes last
	Frozen               // reads a file that no process has open, where SQLite cannot make a log
	// reads, and keeps the index of the log in memory, for a full disk; the files -wal and -shm must exist
	Unindexed
	Receiving // writes a copy of another file, without a sync
	Polling   // reads, and tries locks, but never waits for another process (IsBusy)
	Copying   // copies the log of a file that another connection of this process writes
)

// Open opens the file at path, which must exist. It returns SQLite's errors; Code and the
// Is functions distinguish them. Any goroutine may call it.
func Open(path string, r Role) (*Conn, error) {
	processWide.Do(func() {
		// Without this, any os.Open and Close of the file elsewhere in this process
		// drops SQLite's locks. It exists on Linux only; other systems keep POSIX locks,
		// and ReadHeader closes no descriptor too early.
		_, _ = sqlite.OFDLocking(true)
		sqlite.StrictPragmas(true)
		countNoRoom()
	})
	path, err := filepath.Abs(path) // a URL has no other
	if err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(dsn(path, r))
	if err != nil {
		return nil, err
	}
	f := connect(path)
	raw, err := connector.Connect(context.Background())
	if err != nil {
		f.disconnect()
		return nil, err
	}
	c := &Conn{raw: raw, stmts: map[string]*stmt{}, file: f}
	switch r {
	case Reading, Copying:
		c.first = "PRAGMA synchronous = " + synchronous + "; PRAGMA cache_size = " + cacheSize
		// This opens the log and its index, which might be replaced before the first statement.
		if err := c.rawScript("PRAGMA data_version"); err != nil {
			c.Close()
			return nil, err
		}
	case Creating:
		// The order matters, because each pragma decides how the next writes the first page.
		if err := c.Script("PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL; " +
			"PRAGMA journal_mode = WAL"); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// synchronous FULL makes one fsync before each COMMIT returns. This makes a message
// durable before its 201.
const synchronous = "FULL"

// busyTimeout is how long a statement waits for a lock of another process, in ms.
const busyTimeout = "10000"

// cacheSize is in KiB, because it is negative.
const cacheSize = "-8192"

// dsn returns the connection string for a file, by its absolute path, in a role.
func dsn(path string, r Role) string {
	q := url.Values{
		"mode":          {"rw"}, // does not create the file: file.Create does, with the right permissions
		"_defensive":    {"1"},
		"_dqs":          {"0"},
		"_busy_timeout": {busyTimeout},
		"_synchronous":  {synchronous},
		"_pragma": {
			"trusted_schema(0)",
			// the store copies the log itself, off the commit path (db/internal/engine/checkpoint_sql.go)
			"wal_autocheckpoint(0)",
			"journal_size_limit(16777216)",
			"temp_store(2)",
			"cache_size(" + cacheSize + ")",
			"secure_delete(FAST)", // removed text is overwritten where that needs no further write
			"fullfsync(1)",        // on macOS, data does not survive a power cut after a plain fsync
			"checkpoint_fullfsync(1)",
		},
	}
	switch r {
	case Watching:
		q.Set("mode", "ro") // else the last connection to close copies the log of a file that may not be ours
	case Writing:
		q.Set("_journal_mode", "WAL")
	case Polling:
		q.Set("_busy_timeout", "0")
	case Reading:
		q.Set("_query_only", "1")
	case Frozen:
		q.Set("mode", "ro")
		q.Set("immutable", "1")
	case Unindexed:
		q.Set("mode", "ro")
		q.Set("readonly_shm", "1")
	// MEMORY leaves no journal file; SQLite refuses OFF in defensive mode
	case Receiving:
		q.Set("_synchronous", "OFF") // the caller syncs the file once, when it is whole
		q["_pragma"] = append(q["_pragma"], "journal_mode(MEMORY)")
	}
	if r == Reading || r == Copying { // Conn.first has these
		q.Del("_synchronous")
		q["_pragma"] = slices.DeleteFunc(q["_pragma"], func(p string) bool { return strings.HasPrefix(p, "cache_size") })
	}
	p := filepath.ToSlash(path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // a Windows drive letter
	}
	return (&url.URL{Scheme: "file", Path: p, RawQuery: q.Encode()}).String()
}

// Close closes the statements and the connection. The last connection to a file
// copies its log into it and removes the log, unless its role leaves logs alone.
func (c *Conn) Close() error {
	for _, s := range c.stmts {
		s.close()
	}
	if !c.locks {
		c.lock() // the last connection copies the log
	}
	defer c.unlock()
	err := c.raw.Close()
	c.file.disconnect()
	return err
}

func (c *Conn) prepare(query string) (*stmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	if err := c.setUp(); err != nil {
		return nil, err
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

// Exec runs one statement to its end. Arguments are int64, string, []byte or nil.
// It does not use Ctx, because a context that ends would close the connection.
func (c *Conn) Exec(query string, args ...any) error {
	s, err := c.prepare(query)
	if err != nil {
		return err
	}
	_, err = s.exec.ExecContext(context.Background(), s.bind(args))
	return err
}

// Rows is an open cursor. Read it with for r.Next() {…}; err := r.Close(). There
// can be one open cursor for each query text of a Conn. Columns count from 0.
type Rows struct {
	cursor driver.Rows
	dest   []driver.Value
	until  time.Time
	read   int // rows
	err    error
}

// ErrTooLong is the error of a query that did not end before Conn.Until.
var ErrTooLong = errors.New("the query took too long")

// clockEvery is after how many rows a query checks the clock.
const clockEvery = 64

// Query runs a query and returns its rows. Arguments are as in Exec. Its error, if any,
// comes from Close of the rows. The end of Ctx ends the query.
func (c *Conn) Query(query string, args ...any) *Rows {
	if !c.Until.IsZero() && time.Now().After(c.Until) {
		return &Rows{err: ErrTooLong}
	}
	s, err := c.prepare(query)
	if err != nil {
		return &Rows{err: err}
	}
	ctx := c.Ctx
	if ctx == nil {
		ctx = context.Background()
	}
	r, err := s.query.QueryContext(ctx, s.bind(args))
	if err != nil {
		return &Rows{err: err}
	}
	if s.dest == nil {
		s.dest = make([]driver.Value, len(r.Columns()))
	}
	return &Rows{cursor: r, dest: s.dest, until: c.Until}
}

// Next reads the next row. It returns false at the end and after an error, which
// Close returns.
func (r *Rows) Next() bool {
	if r.err != nil {
		return false
	}
	if r.read++; r.read%clockEvery == 0 && !r.until.IsZero() && time.Now().After(r.until) {
		r.err = ErrTooLong
		return false
	}
	r.err = r.cursor.Next(r.dest)
	return r.err == nil
}

// Close closes the cursor and returns the first error of the query. Call it once, even
// before the end of the rows.
func (r *Rows) Close() error {
	if r.cursor != nil {
		if err := r.cursor.Close(); r.err == nil || r.err == io.EOF && err != nil {
			r.err = err
		}
	}
	if r.err == io.EOF {
		return nil
	}
	return r.err
}

// Int returns a column as an integer, or 0 if it is NULL or of another type.
func (r *Rows) Int(i int) int64 { n, _ := r.dest[i].(int64); return n }

// Value returns a column in its type: int64, float64, string, []byte or nil. A
// []byte is valid until Next or Close.
func (r *Rows) Value(i int) any { return r.dest[i] }

// Null reports whether a column is NULL.
func (r *Rows) Null(i int) bool { return r.dest[i] == nil }

// Text returns a column as text, or "" if it is NULL or of another type.
func (r *Rows) Text(i int) string { s, _ := r.dest[i].(string); return s }

// Blob returns a column as bytes, valid until Next or Close; or nil if it is NULL or of
// another type.
func (r *Rows) Blob(i int) []byte { b, _ := r.dest[i].([]byte); return b }

// Row runs a query of at most one row and calls scan with it; scan may be nil. ok
// reports whether there was a row.
func (c *Conn) Row(scan func(*Rows), query string, args ...any) (ok bool, err error) {
	r := c.Query(query, args...)
	if r.Next() {
		ok = true
		if scan != nil {
			scan(r)
		}
	}
	return ok, r.Close()
}

// CopyTo begins to copy the database into the empty file at path. Its Step copies
// some pages; its Finish ends the copy.
func (c *Conn) CopyTo(path string) (*sqlite.Backup, error) {
	if err := c.setUp(); err != nil {
		return nil, err
	}
	return c.raw.(interface {
		NewBackup(string) (*sqlite.Backup, error)
	}).NewBackup(dsn(path, Receiving))
}

// Begin starts a transaction that reads a consistent snapshot.
func (c *Conn) Begin() error { return c.Exec("BEGIN") }

// BeginWrite starts a transaction that may write. It waits up to 10 s for the write lock
// (IsBusy); after Begin, a later write would not wait.
func (c *Conn) BeginWrite() error {
	c.lock()
	err := c.Exec("BEGIN IMMEDIATE")
	if err != nil {
		c.unlock()
	}
	return err
}

// Commit ends a transaction and keeps its changes. They are durable when it
// returns nil, unless the role does not sync. After an error, call Rollback.
func (c *Conn) Commit() error {
	err := c.Exec("COMMIT")
	if err == nil {
		c.unlock()
	}
	return err
}

// Rollback ends a transaction and drops its changes. It ignores errors, since
// SQLite may have ended a failed transaction itself.
func (c *Conn) Rollback() {
	_ = c.Exec("ROLLBACK")
	c.unlock()
}

// WaitForLock sets how long a statement waits for a lock that another connection has, in
// whole milliseconds. The default is 10 seconds, and 0 for the role Polling.
func (c *Conn) WaitForLock(limit time.Duration) error {
	return c.Script("PRAGMA busy_timeout = " + strconv.FormatInt(limit.Milliseconds(), 10))
}

// Script runs several statements without arguments.
func (c *Conn) Script(text string) error {
	if err := c.setUp(); err != nil {
		return err
	}
	return c.rawScript(text)
}

// setUp runs the settings that precede the first statement.
func (c *Conn) setUp() error {
	if c.first == "" {
		return nil
	}
	err := c.rawScript(c.first)
	if err == nil {
		c.first = ""
	}
	return err
}

func (c *Conn) rawScript(text string) error {
	r, err := c.raw.Prepare(text)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.(driver.StmtExecContext).ExecContext(context.Background(), nil)
	return err
}

// Number runs a query and returns the integer in its first column, or 0 without a row.
func (c *Conn) Number(query string, args ...any) (n int64, err error) {
	_, err = c.Row(func(r *Rows) { n = r.Int(0) }, query, args...)
	return n, err
}

// OpenMemory opens an empty database in memory.
func OpenMemory() (*Conn, error) {
	connector, err := sqlite.NewConnector("file::memory:?_dqs=0")
	if err != nil {
		return nil, err
	}
	raw, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	return &Conn{raw: raw, stmts: map[string]*stmt{}}, nil
}
