// Package db is the relay's store: the words of the service (addresses,
// messages, acknowledgements, keys, errors), its rules, and the one SQLite
// file in which everything stands.
//
// # Writing
//
// A write is a value (SendMessage, Acknowledge, IssueKey, …) that holds all it
// needs, its time included. One goroutine takes the waiting writes, applies as
// many as queued up during the last commit in one transaction, commits once
// (one fsync), then releases every waiter and rings the bell, in commit order.
// So when DB.Send returns without an error the message survives a power cut,
// and concurrent senders share an fsync. A write that is refused leaves nothing
// behind and does not disturb its neighbours.
//
// # Reading
//
// A few query-only connections read. They see what has been committed, never
// block the writer, and never hold a cursor open while a caller works.
//
// # Listening
//
// Whoever wants to know of new messages registers with OnCommit. What it is
// told is a hint to look, or to use at once if it is the immediate successor
// of what it has seen: the file is the truth.
//
// Files named *_sql.go hold the SQL; the others know only the standard library.
package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Options says how to open a store. Path and Schema are required.
type Options struct {
	Path   string
	Schema string // the text of schema.sql
	// Create makes the file if there is none; else a missing file is an error.
	Create bool
	// Serve takes the lock that only one server may hold, and reads back live nonces.
	// What is sent is then written in two steps (tail.go).
	Serve bool
	// Discard keeps nothing of what is written: for measuring alone. A file that
	// exists is refused, so that it can never be somebody's.
	Discard bool

	MaxPending  int           // messages waiting per recipient; 0: no bound
	MaxNonces   int64         // remembered nonces; 0: no bound
	MinFreeDisk int64         // bytes; below it sends are refused; 0: no floor
	ClockSkew   time.Duration // how far a request's timestamp may be off

	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default: discard
	// Fatal is called once, from any goroutine, after a fault that the process must
	// not survive (a failed fsync, a damaged file). Every later write fails.
	Fatal func(error)
}

// DB is an open store. All its methods are safe for concurrent use.
type DB struct {
	opts    Options
	path    string
	ids     *ids
	words   *names[string]
	mechas  *names[Address]
	keys    keyCache
	nonces  *Nonces
	readers chan *conn // the idle ones
	opened  int
	w       *writer
	lock    *os.File
	files   []servedFile // what a server looks after; set by Open
	pushes  pushLog
	tail    tail

	diskLow   atomic.Bool
	listening sync.RWMutex // guards the three below
	bell      []func(*Commit)
	onKeys    []func()
	onEntries []func()
	seen      sync.Map // MechaID → *atomic.Int64: Unix ms of the last request
	shutdown  sync.Once
	done      chan struct{} // closed when the store closes
	wg        sync.WaitGroup
}

const readConns = 4

// Open opens the store, brings its schema up to date and starts the writer.
// Close it when done.
func Open(o Options) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, err
	}
	d := &DB{opts: o, path: path, nonces: newNonces(o.MaxNonces), readers: make(chan *conn, readConns), done: make(chan struct{})}
	d.keys.byHash, d.keys.used = map[[32]byte]*Key{}, map[int64]*atomic.Int64{}
	if err := d.open(); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

func (d *DB) open() error {
	if _, err := os.Lstat(d.path); d.opts.Discard && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s exists: without a store (--store none) only a new file will do, for nothing is kept", d.path)
	}
	if info, err := os.Stat(d.path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder, not a database (--db names the file)", d.path)
	}
	if d.opts.Create {
		if err := createFile(d.path); err != nil {
			return fmt.Errorf("cannot create the database: %w", err)
		}
	} else if err := mustExist(d.path); err != nil {
		return err
	}
	if open, err := readableByOthers(d.path); err == nil && open && d.opts.Serve {
		d.opts.Logger.Warn("other users may read the database; it holds messages and signing secrets: chmod 600 it", "db", d.path)
	}
	if d.opts.Serve {
		if err := d.takeLock(); err != nil {
			return err
		}
	}
	c, err := openCurrent(d.path, d.opts.Schema, d.opts.Serve)
	if err != nil {
		return err
	}
	d.w = newWriter(d, c)
	if err := d.readSecret(c); err != nil {
		return err
	}
	for range readConns {
		r, err := openConn(d.path, reading)
		if err != nil {
			return err
		}
		d.readers <- r
		d.opened++
	}
	d.words, d.mechas = newWords(), newMechas()
	if err := d.w.start(); err != nil {
		return err
	}
	copier, err := openConn(d.path, writing)
	if err != nil {
		return err
	}
	if d.opts.Serve {
		if err := d.rememberFiles(); err != nil {
			copier.close()
			return err
		}
	}
	d.checkDisk()
	d.wg.Go(d.w.run)
	d.wg.Go(func() { d.checkpointer(copier) })
	return nil
}

// takeLock keeps a second server off the file, by whatever name it comes.
func (d *DB) takeLock() error {
	real, err := filepath.EvalSymlinks(d.path)
	if err != nil {
		return err
	}
	lock, err := lockFile(real + ".lock")
	if errors.Is(err, errLocked) {
		return fmt.Errorf("%s is already being served by another process", d.path)
	}
	d.lock = lock
	return err
}

// Close lets the queued writes finish, then closes the file. Writes that come
// later are refused with ShuttingDown.
func (d *DB) Close() error {
	d.shutdown.Do(func() {
		d.w.stop()
		<-d.w.ended
		close(d.done)
		d.wg.Wait()
	})
	return d.release()
}

func (d *DB) release() error {
	if d.w != nil && d.w.failed() != nil {
		// The last connection to close copies the log, syncs and removes it: after a
		// failed fsync that could lose what the log still has. The process ends it.
		return nil
	}
	for ; d.opened > 0; d.opened-- { // waits for those that are at work
		(<-d.readers).close()
	}
	var err error
	if d.w != nil && d.w.c != nil {
		err = d.w.c.close() // the last one out checkpoints the log
		d.w.c = nil
	}
	if d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
	return err
}

// Path is the absolute path of the file.
func (d *DB) Path() string { return d.path }

// OnCommit registers f to be told of every commit that brought messages or
// changes, in commit order, from the writer: f must not block. Register before
// the store is used.
func (d *DB) OnCommit(f func(*Commit)) {
	d.listening.Lock()
	defer d.listening.Unlock()
	d.bell = append(d.bell, f)
}

// OnKeys registers f to be told that some key may have been revoked, or
// changed, here or by another process. Same rules as OnCommit.
func (d *DB) OnKeys(f func()) {
	d.listening.Lock()
	defer d.listening.Unlock()
	d.onKeys = append(d.onKeys, f)
}

// OnEntries registers f to be told that some Mecha or profile changed, here or
// in another process. Same rules as OnCommit.
func (d *DB) OnEntries(f func()) {
	d.listening.Lock()
	defer d.listening.Unlock()
	d.onEntries = append(d.onEntries, f)
}

// Failed gives the fault after which the store takes no writes; nil while all is well.
func (d *DB) Failed() error { return d.w.failed() }

// AcceptsMessages tells whether there is room on the disk. Acknowledgements
// and reads go on without.
func (d *DB) AcceptsMessages() bool { return !d.diskLow.Load() }

// rx is a read transaction: a consistent view of the file at one time.
type rx struct {
	c       *conn
	d       *DB
	now     time.Time
	writing bool // within a transaction that may be rolled back
}

// read runs f in a read transaction on one of the reading connections.
func (d *DB) read(ctx context.Context, f func(*rx) error) error {
	var c *conn
	select {
	case c = <-d.readers:
	case <-d.done:
		return errShuttingDown()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { d.readers <- c }()
	if err := c.begin(); err != nil {
		return d.readFault(err)
	}
	defer c.rollback() // nothing was written; also if f panics
	return d.readFault(f(&rx{c: c, d: d, now: d.opts.Now()}))
}

func (d *DB) readFault(err error) error {
	if err != nil && isFatal(err) {
		d.w.fail(err)
	}
	return err
}

func errShuttingDown() error {
	e := Errorf(ShuttingDown, "the relay is shutting down")
	e.RetryAfter = time.Second
	return e
}

func (d *DB) errDiskFull() error {
	return Errorf(DiskFull, "the disk is full, or nearly: messages are refused until there is space")
}
