// Package db opens the relay's store. It opens the SQLite file and embeds the rooms, so that their
// methods are methods of DB. Messages, keys and the writes themselves are in package relay.
//
// # Writing
//
// A write is a value of package relay, such as SendMessage, that holds everything it depends on,
// including its time. One goroutine, the writer (package engine), takes all jobs that were queued
// during the last commit, applies them in one transaction, commits once (one fsync), and then calls
// back every waiting caller. So when DB.Send returns without an error, the message survives a power
// cut, and concurrent senders share an fsync. A refused write changes nothing and does not affect the
// other jobs of its transaction.
//
// A job is a write or a local write. The same writes in the same order make the same store. A local
// write stores rows that are local to this process, such as the answer to a search, and has no place
// in that order.
//
// A room holds everything that the store has for one noun: its rows, its caches, its kinds of writes,
// and its background tasks, such as the expiry of messages. The writer knows rooms by their hooks
// alone (engine.Room).
//
// # Reading
//
// Query-only connections, the readers, see the last commit and never block the writer. A method that
// reads copies its rows and closes the cursor before it returns. Mechas take turns in three lanes
// (package readers): keys, points, and scans, which read many rows, a piece at a time. If too many
// reads of one Mecha wait, its next one gets RateLimited.
//
// # Listening
//
// A listener (OnCommit, OnKeys, OnEntries) is called after a commit. OnCommit is called in commit
// order, from the writer's goroutine. The file is the truth: a listener may use a message directly
// only if it has seen every message before that one. Otherwise it reads the file.
//
// # While a server runs
//
// One process writes to a file. A DB without Options.Serve, such as that of a command, hands its
// writes to the server of the file, if there is one (served.go). A look.Inspector reads the file at
// the same time. With Options.Log, writes go through a log that several nodes follow.
//
// The files *_sql.go, here and in the rooms, have the SQL; the other files have none.
package db

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"relay/db/admin"
	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/lessons"
	"relay/db/internal/mailbox"
	"relay/db/internal/names"
	"relay/db/internal/platform"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Options says how to open a store. Path and Schema are required.
type Options struct {
	Path   string
	Schema string // the text of schema.sql
	// Create makes the file if it is missing; else a missing file is an error.
	Create bool
	// Serve makes this process the server of the file: it takes requests of commands, and restores
	// the nonces that could still be replayed. A server writes the mailbox tables behind (package
	// mailbox), and only a server expires messages.
	Serve bool

	MaxPending int // pending messages of one recipient; 0 means no limit
	// ConversationLimit is the message limit of conversations whose founder has set none; 0
	// means no limit.
	ConversationLimit int
	// MaxAttempts is the number of attempts of workers at a message before the relay gives
	// it up, unless the recipient's profile says otherwise; 0 means no limit.
	MaxAttempts int
	// MaxBroadcast is the maximum number of recipients of a message to a crew; 0 disables
	// such messages.
	MaxBroadcast int
	// Lessons makes the room of what is learned (PROTOCOL §5, Learning); nil means the room that the
	// program has registered.
	Lessons lessons.Make

	MaxNonces   int64         // remembered nonces; 0 means no limit
	MinFreeDisk int64         // bytes of free space below which sends are refused; 0 means no limit
	ClockSkew   time.Duration // how far the timestamp of a request may be off
	Retention   time.Duration // age at which a server removes messages; 0: never
	KeepExpired time.Duration // how long after its ExpiresAt a server removes an expired message; 0: never

	// LockWait is how long a write waits while another process has the write lock, until it is
	// refused with DatabaseLocked; 0: 10 s.
	LockWait time.Duration

	// Log makes the file a copy that follows a log of several nodes; nil: the file is its own
	// log. The file must be a copy of the file of such a node. Only a server can follow a log.
	Log Follower
	// Gate is what this node knows of the other nodes of the log; nil if it is the only node.
	Gate engine.Gate

	// By is the operator who administers the store by this process. Its acts are noted in
	// the audit log, unless By is the zero Actor.
	By relay.Actor

	Now    func() time.Time // default: time.Now
	Logger *slog.Logger     // default: no log
	// Fatal is called once, from any goroutine, after a fault that the process must
	// not survive (a failed fsync, a damaged file). Every later write fails.
	Fatal func(error)

	passed func() time.Duration // set in tests: the running time, which Now does not show
}

// DB is an open store. All its methods are safe for concurrent use.
type DB struct {
	opts Options
	w    *engine.Store
	nouns
	lock   *file.Locked  // nil: another process may write
	server *forwarder    // for a command, forwards writes to the server of the file; nil if this process writes
	admin  *admin.Server // takes the requests of commands; nil without a socket

	shutdown sync.Once
	closed   error // the error of the shutdown
	wg       sync.WaitGroup
}

// Open opens the store, brings the file's schema up to date and starts the writer.
// The caller closes the DB. Errors name the path: the file is missing, is not
// relay's, was written by a newer relay, or is served by another process.
func Open(o Options) (*DB, error) { return open(o, nil) }

// open is Open. prepare may be nil; it may change the writer before the writer starts.
func open(o Options, prepare func(*DB)) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Lessons == nil {
		o.Lessons = lessons.Registered()
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, err
	}
	d := &DB{opts: o, w: engine.New(engine.Options{Schema: o.Schema, Serve: o.Serve, MinFreeDisk: o.MinFreeDisk,
		LockWait: o.LockWait, By: o.By, Now: o.Now, Logger: o.Logger, Fatal: o.Fatal, Gate: o.Gate}, path,
		names.New(mailbox.NewTailMessages()))}
	nouns, rooms := newRooms(d.w, &o)
	d.nouns = nouns
	d.w.Has(rooms, newTable(rooms))
	if err := d.open(prepare); err != nil {
		d.release()
		return nil, file.Explain(path, err)
	}
	return d, nil
}

func (d *DB) open(prepare func(*DB)) error {
	switch info, err := os.Stat(d.w.Path); {
	case err != nil:
	case info.IsDir():
		return fmt.Errorf("%s is a folder, not a database (--db names the file)", d.w.Path)
	case !info.Mode().IsRegular(): // opening a pipe would wait for its other end
		return fmt.Errorf("%s is not a file", d.w.Path)
	}
	if d.opts.Create {
		if err := file.Create(d.w.Path); err != nil {
			return fmt.Errorf("cannot create the database: %w", err)
		}
	} else if err := file.MustExist(d.w.Path); err != nil {
		return err
	}
	if open, err := platform.ReadableByOthers(d.w.Path); err == nil && open && d.w.Opts.Serve {
		d.w.Opts.Logger.Warn("other users may read the database; it holds messages and signing secrets: chmod 600 it",
			"db", d.w.Path)
	}
	if err := file.MustBeRelays(d.w.Path); err != nil { // before its lock is made
		return err
	}
	if err := d.take(); err != nil {
		return err
	}
	if d.w.Opts.Serve {
		for _, path := range file.RemovePartials(filepath.Dir(d.w.Path)) {
			d.w.Opts.Logger.Info("removed the unfinished copy of a backup or restore that was killed", "path", path)
		}
	}
	role, err := d.connect()
	if err != nil {
		return err
	}
	if err := d.w.Opts.ApplyLockWait(d.w.C); err != nil {
		return err
	}
	if d.w.IDs, err = file.ReadIDs(d.w.C, d.w.Path); err != nil {
		return err
	}
	if err := d.openLog(); err != nil {
		return err
	}
	if err := d.w.Readers.Open(d.w.Path, role); err != nil {
		return err
	}
	if err := d.start(); err != nil {
		return err
	}
	return d.run(prepare)
}

// take locks the file. For a command, the server may have the lock, if it answers.
func (d *DB) take() (err error) {
	held, server, err := admin.Take(d.w.Path, d.w.Opts.Serve)
	if d.lock = held; server != nil {
		d.server = &forwarder{Client: server, d: d}
	}
	return err
}

// connect opens the writer's connection, which only reads if a server has the file. role is
// the role of the readers' connections.
func (d *DB) connect() (role sqlite.Role, err error) {
	if d.server != nil {
		var info file.Info
		if d.w.C, info, err = file.OpenReadOnly(d.w.Path); err == nil && info.Version < file.CurrentSchema() {
			err = fmt.Errorf("%s is being served by an older relay: stop that first, then relay serve of this one brings the "+
				"file up to date", d.w.Path)
		}
		return sqlite.Reading, err
	}
	d.w.C, err = file.OpenCurrent(d.w.Path, d.w.Opts.Schema)
	if d.w.Opts.Serve && sqlite.IsDiskFull(err) {
		d.w.C, err = file.OpenFull(d.w.Path)
		d.w.StartedFull = err == nil
		return sqlite.Unindexed, err
	}
	return sqlite.Reading, err
}

// run starts the writer and, unless the disk is full, its helper goroutines.
func (d *DB) run(prepare func(*DB)) error {
	if d.w.Opts.Serve {
		if err := d.w.Foreign.RememberFiles(d.w.Path); err != nil {
			return err
		}
		if err := d.listen(); err != nil {
			return err
		}
	}
	d.w.StartHelpers = d.startHelpers
	if d.server != nil {
		// the server has them
	} else if d.w.StartedFull {
		d.w.Opts.Logger.Error("the disk is full: reads are served, and every write gets 507 disk_full until there is room",
			"db", d.w.Path)
		d.w.Disk.StartedFull.Store(true)
	} else if err := d.startHelpers(); err != nil {
		return err
	}
	d.w.Disk.Check()
	if prepare != nil {
		prepare(d)
	}
	d.wg.Go(d.w.Run)
	if d.w.Log != nil {
		d.w.Log.Start()
	}
	d.serveAdmin()
	return nil
}

// StartHelpers starts the goroutine that copies the log, and the watch.
func (d *DB) startHelpers() error {
	copier, err := sqlite.Open(d.w.Path, sqlite.Copying)
	if err != nil {
		return err
	}
	if err := d.w.Watch.Open(); err != nil && !sqlite.IsDiskFull(err) {
		copier.Close()
		return err
	}
	d.wg.Go(func() { d.w.Checkpoints.CopyInBackground(copier, d.w.Done) })
	d.wg.Go(func() { d.w.Watch.Run(d.w.Done) })
	return nil
}

// Close applies the queued writes, then closes the file. Later writes are refused with
// ShuttingDown. Every call waits for the end and returns the same error.
func (d *DB) Close() error {
	d.shutdown.Do(func() {
		if d.w.Log != nil {
			d.w.Log.Stop() // and with it what commands wait for
		}
		d.admin.Close()
		d.w.Stop()
		<-d.w.Ended
		close(d.w.Done)
		d.wg.Wait()
		d.closed = d.release()
	})
	return d.closed
}

// release closes everything that open has opened so far. It is called once.
func (d *DB) release() error {
	if d.w.Failed() != nil {
		// The last connection to close copies the log, syncs and removes it. After a
		// failed fsync that could lose commits that only the log has. So the connections
		// stay open until the process ends.
		return nil
	}
	if d.server != nil {
		d.server.close()
	}
	d.admin.Close()
	d.w.Readers.Close()
	err := d.Replays.Used.Close()
	if d.w.C != nil {
		err = errors.Join(err, d.w.C.Close()) // closed last, since that copies the log into the file
	}
	if d.lock != nil {
		d.lock.Leave(d.w.Opts.Serve)
	}
	return err
}

// WithoutLocks runs f while no store of this process has its file locked against other
// processes: no write transaction and no copying of the log is running, and none begins
// before f returns. f must not use a store.
func WithoutLocks(f func()) { sqlite.WithoutLocks(f) }

// Path returns the absolute path of the file.
func (d *DB) Path() string { return d.w.Path }

// OnCommit registers f, which is called after every commit that brought messages or
// changes, in commit order, from the writer's goroutine: f must not block. Register
// before the store is used.
func (d *DB) OnCommit(f func(*relay.Commit)) {
	d.w.Listeners.Mu.Lock()
	defer d.w.Listeners.Mu.Unlock()
	d.w.Listeners.OnCommit = append(d.w.Listeners.OnCommit, f)
}

// OnKeys registers f, which is called when a key may have been revoked or changed,
// here or by another process. f may be called by two goroutines at the same time, and more
// than once for one change. It must not block. Register before the store is used.
func (d *DB) OnKeys(f func()) { d.w.Listeners.Add(engine.KeysChanged, f) }

// OnEntries registers f, which is called when a Mecha, a profile or learned words may
// have changed, here or in another process. It follows the rules of OnKeys.
func (d *DB) OnEntries(f func()) { d.w.Listeners.Add(engine.EntriesChanged|engine.LearnedChanged, f) }

// Lessons returns the room of learned words, for the ring that has brought it.
func (d *DB) Lessons() lessons.Lessons { return d.lessons }

// Failed returns the fault after which the store takes no writes, or nil.
func (d *DB) Failed() error { return d.w.Failed() }

// AcceptsMessages reports whether the disk has room for messages. Without room, Send
// refuses them with DiskFull, while acknowledgements and reads keep working.
func (d *DB) AcceptsMessages() bool { return !d.w.Disk.Low.Load() }
