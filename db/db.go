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
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/relay"
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
	opts Options
	path string
	*lookups
	keys      keyCache
	nonces    *Nonces
	readers   *readerPool
	w         *writer
	disk      disk
	listeners listeners
	seen      sync.Map // MechaID → *atomic.Int64: Unix ms of the last request
	lock      *os.File

	shutdown sync.Once
	done     chan struct{} // closed when the store closes
	wg       sync.WaitGroup
}

// Open opens the store, brings its schema up to date and starts the writer.
// Close it when done.
func Open(o Options) (*DB, error) { return open(o, nil) }

// open is Open. prepare may change the writer before it starts.
func open(o Options, prepare func(*DB)) (*DB, error) {
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
	d := &DB{opts: o, path: path, lookups: newLookups(), nonces: newNonces(o.MaxNonces), readers: newReaderPool(), done: make(chan struct{})}
	d.keys = newKeyCache()
	d.listeners.onKeys = []func(){d.keys.forget}
	d.disk = disk{folder: filepath.Dir(path), floor: o.MinFreeDisk, log: o.Logger}
	if err := d.open(prepare); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

func (d *DB) open(prepare func(*DB)) error {
	if info, err := os.Stat(d.path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder, not a database (--db names the file)", d.path)
	}
	if d.opts.Create {
		if err := file.Create(d.path); err != nil {
			return fmt.Errorf("cannot create the database: %w", err)
		}
	} else if err := file.MustExist(d.path); err != nil {
		return err
	}
	if open, err := sqlite.ReadableByOthers(d.path); err == nil && open && d.opts.Serve {
		d.opts.Logger.Warn("other users may read the database; it holds messages and signing secrets: chmod 600 it", "db", d.path)
	}
	if d.opts.Serve {
		if err := d.takeLock(); err != nil {
			return err
		}
	}
	c, err := file.OpenCurrent(d.path, d.opts.Schema, d.opts.Serve)
	if err != nil {
		return err
	}
	d.w = newWriter(d, c)
	if d.ids, err = file.ReadIDs(c, d.path); err != nil {
		return err
	}
	if err := d.readers.open(d.path); err != nil {
		return err
	}
	if err := d.w.start(d.nonces); err != nil {
		return err
	}
	return d.run(prepare)
}

// run starts the goroutines.
func (d *DB) run(prepare func(*DB)) error {
	copier, err := sqlite.Open(d.path, sqlite.Writing)
	if err != nil {
		return err
	}
	if d.opts.Serve {
		if err := d.w.foreign.rememberFiles(d.path); err != nil {
			copier.Close()
			return err
		}
	}
	d.disk.check()
	if prepare != nil {
		prepare(d)
	}
	d.wg.Go(d.w.run)
	d.wg.Go(func() { d.w.checkpoints.copyInBackground(copier, d.done) })
	return nil
}

// takeLock keeps a second server off the file, by whatever name it comes.
func (d *DB) takeLock() error {
	real, err := filepath.EvalSymlinks(d.path)
	if err != nil {
		return err
	}
	lock, err := sqlite.LockFile(real + ".lock")
	if errors.Is(err, sqlite.ErrLocked) {
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
	d.readers.close()
	var err error
	if d.w != nil && d.w.c != nil {
		err = d.w.c.Close() // the last one out checkpoints the log
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
func (d *DB) OnCommit(f func(*relay.Commit)) {
	d.listeners.add(func(l *listeners) { l.onCommit = append(l.onCommit, f) })
}

// OnKeys registers f to be told that some key may have been revoked, or
// changed, here or by another process. Same rules as OnCommit.
func (d *DB) OnKeys(f func()) { d.listeners.add(func(l *listeners) { l.onKeys = append(l.onKeys, f) }) }

// OnEntries registers f to be told that some Mecha or profile changed, here or
// in another process. Same rules as OnCommit.
func (d *DB) OnEntries(f func()) {
	d.listeners.add(func(l *listeners) { l.onEntries = append(l.onEntries, f) })
}

// Failed gives the fault after which the store takes no writes; nil while all is well.
func (d *DB) Failed() error { return d.w.failed() }

// AcceptsMessages tells whether there is room on the disk. Acknowledgements
// and reads go on without.
func (d *DB) AcceptsMessages() bool { return !d.disk.low.Load() }

// read runs f in a read transaction on one of the reading connections.
func (d *DB) read(ctx context.Context, f func(*rx) error) error {
	c, err := d.readers.take(ctx, d.done)
	if err != nil {
		return err
	}
	defer d.readers.give(c)
	if err := c.Begin(); err != nil {
		return d.readFault(err)
	}
	defer c.Rollback() // nothing was written; also if f panics
	return d.readFault(f(&rx{c: c, lookups: d.lookups, now: d.opts.Now()}))
}

func (d *DB) readFault(err error) error {
	if err != nil && sqlite.IsFatal(err) {
		d.w.fail(err)
	}
	return err
}

func errShuttingDown() error {
	e := relay.Errorf(relay.ShuttingDown, "the relay is shutting down")
	e.RetryAfter = time.Second
	return e
}

func errDiskFull() error {
	return relay.Errorf(relay.DiskFull, "the disk is full, or nearly: messages are refused until there is space")
}
