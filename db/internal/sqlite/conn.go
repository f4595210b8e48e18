package sqlite

import (
	"context"
	"database/sql/driver"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"modernc.org/sqlite"
)

// Conn is one SQLite connection with its prepared statements. It goes around
// database/sql, whose pool, contexts and conversions cost more than a row does.
// A conn belongs to one goroutine at a time.
type Conn struct {
	raw   driver.Conn
	stmts map[string]*stmt
	Ctx   context.Context // of a command: its end interrupts queries, after which only close is of use; or nil
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
type Role int

const (
	Watching Role = iota // changes nothing, and leaves the log alone
	Creating             // makes an empty file ours
	Writing
	Reading   // cannot write
	Frozen    // of a file that nobody has open, where no log can be made
	Receiving // an empty file that becomes a copy of another
)

// Open opens path, which must exist.
func Open(path string, r Role) (*Conn, error) {
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
	c := &Conn{raw: raw, stmts: map[string]*stmt{}}
	if r == Creating {
		// In this order: each decides how the next writes the first page.
		if err := c.Script("PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL"); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// synchronous FULL is one fsync before each COMMIT returns: the 201's promise.
const synchronous = "FULL"

func dsn(path string, r Role) string {
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
	case Watching:
		q.Set("mode", "ro") // else the last one out copies the log, of a file that may not be ours
	case Writing:
		q.Set("_journal_mode", "WAL")
	case Reading:
		q.Set("_query_only", "1")
	case Frozen:
		q.Set("mode", "ro")
		q.Set("immutable", "1")
	case Receiving:
		q.Set("_synchronous", "OFF")                                // it is synced once, when it is whole
		q["_pragma"] = append(q["_pragma"], "journal_mode(MEMORY)") // MEMORY leaves no journal file; SQLite refuses OFF in defensive mode
	}
	p := filepath.ToSlash(path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // a Windows drive letter
	}
	return (&url.URL{Scheme: "file", Path: p, RawQuery: q.Encode()}).String()
}

func (c *Conn) Close() error {
	for _, s := range c.stmts {
		s.close()
	}
	return c.raw.Close()
}

func (c *Conn) prepare(query string) (*stmt, error) {
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

// Exec runs a statement whose arguments are int64, string, []byte or nil.
// The background context is deliberate: a cancelled one would throw the connection away.
func (c *Conn) Exec(query string, args ...any) error {
	s, err := c.prepare(query)
	if err != nil {
		return err
	}
	_, err = s.exec.ExecContext(context.Background(), s.bind(args))
	return err
}

// Rows is an open cursor: for r.next() {…}; err := r.close(). A statement has
// one cursor at a time.
type Rows struct {
	cursor driver.Rows
	dest   []driver.Value
	err    error
}

func (c *Conn) Query(query string, args ...any) *Rows {
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
	return &Rows{cursor: r, dest: s.dest}
}

func (r *Rows) Next() bool {
	if r.err != nil {
		return false
	}
	r.err = r.cursor.Next(r.dest)
	return r.err == nil
}

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

func (r *Rows) Int(i int) int64 { n, _ := r.dest[i].(int64); return n }

// Value gives a column as SQLite has it: int64, float64, string, []byte or nil. A
// []byte is good until next.
func (r *Rows) Value(i int) any { return r.dest[i] }

func (r *Rows) Null(i int) bool { return r.dest[i] == nil }

func (r *Rows) Text(i int) string { s, _ := r.dest[i].(string); return s }

func (r *Rows) Blob(i int) []byte { b, _ := r.dest[i].([]byte); return b }

// Row runs a query of at most one row and calls scan on it; ok tells if there was one.
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

// CopyTo begins to copy the database into the empty file at path, page by page.
func (c *Conn) CopyTo(path string) (*sqlite.Backup, error) {
	return c.raw.(interface {
		NewBackup(string) (*sqlite.Backup, error)
	}).NewBackup(dsn(path, Receiving))
}

// Begin starts a transaction that sees one state of the file.
func (c *Conn) Begin() error { return c.Exec("BEGIN") }

// BeginWrite starts a transaction that may write: a later upgrade would fail at once.
func (c *Conn) BeginWrite() error { return c.Exec("BEGIN IMMEDIATE") }

func (c *Conn) Commit() error { return c.Exec("COMMIT") }

// Rollback ends a transaction that has failed; SQLite may have ended it itself.
func (c *Conn) Rollback() { _ = c.Exec("ROLLBACK") }

// Script runs several statements without arguments.
func (c *Conn) Script(text string) error {
	r, err := c.raw.Prepare(text)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.(driver.StmtExecContext).ExecContext(context.Background(), nil)
	return err
}

// Number reads one integer; 0 if there is no row.
func (c *Conn) Number(query string, args ...any) (n int64, err error) {
	_, err = c.Row(func(r *Rows) { n = r.Int(0) }, query, args...)
	return n, err
}

// OpenMemory opens an empty database that is nowhere.
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
