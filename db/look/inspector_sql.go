package look

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/names"
	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
	"relay/db/turn"
)

// inspectConns is how many reads of an Inspector run at a time.
const inspectConns = 4

// An Inspector reads a store's file, with or without a server running on it. It sees the
// messages of all Mechas. It changes nothing, and keeps each snapshot open only for a
// moment, so that the server's log does not grow. Its methods are safe for concurrent
// use; inspectConns of them read at a time, so that a short read need not wait for a long
// one.
type Inspector struct {
	at   string
	file os.FileInfo // the file at the path when the first connection was opened; all later connections open it
	*names.Caches
	lane    *readers.Lane // opens a connection when all others are in use
	closing sync.Once
	closed  chan struct{}
	watch   struct {
		mu   sync.Mutex
		c    *sqlite.Conn // for Changed alone; nil before the first call
		data int64        // PRAGMA data_version at the last Changed
	}
	rest atomic.Int64 // nanoseconds that Scan waits first
}

// Inspect opens the file at path for reading. Errors name the absolute path: the file
// is missing, is not relay's, or has another schema version. The caller closes the
// Inspector.
func Inspect(path string) (*Inspector, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	c, info, err := file.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	i := &Inspector{at: path, Caches: names.New(mailbox.NewTailMessages()), closed: make(chan struct{})}
	i.lane = readers.NewLane(turn.Options{Places: inspectConns, Closed: i.closed})
	i.lane.Put(c)
	if err = info.MustBeCurrent(path); err == nil {
		if i.file, err = os.Stat(path); err == nil {
			i.IDs, err = file.ReadIDs(c, path)
			err = file.Explain(path, err)
		}
	}
	if err != nil {
		i.lane.Close()
		return nil, err
	}
	return i, nil
}

// connect opens a further connection.
func (i *Inspector) connect() (*sqlite.Conn, error) {
	c, _, err := file.OpenReadOnly(i.at)
	if err != nil {
		return nil, err
	}
	now, err := os.Stat(i.at)
	if err == nil && !os.SameFile(now, i.file) {
		err = fmt.Errorf("%s was replaced by another file", i.at)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the file, once all reads have ended.
func (i *Inspector) Close() (err error) {
	i.closing.Do(func() {
		close(i.closed)
		err = i.lane.Close()
		if i.watch.c != nil {
			err = errors.Join(err, i.watch.c.Close())
		}
	})
	return err
}

// Path returns the absolute path of the file.
func (i *Inspector) Path() string { return i.at }

// Point runs f in a transaction that reads a consistent snapshot.
func (i *Inspector) Point(ctx context.Context, f func(*engine.Rx) error) error {
	if err := i.lane.Take(ctx, 0, readers.AnyNumber); err != nil {
		return err
	}
	defer i.lane.Give(0)
	c := i.lane.Pop()
	if c == nil {
		var err error
		if c, err = i.connect(); err != nil {
			return err
		}
	}
	defer i.lane.Put(c)
	if err := c.Begin(); err != nil {
		return err
	}
	defer c.Rollback()
	return f(&engine.Rx{C: c, Caches: i.Caches, Now: time.Now()})
}

// Scan is Point for one of many views in a row. It first waits for as long as the
// previous view took. SQLite restarts the log of a server only while nobody reads, and
// views without a pause would let the log grow.
func (i *Inspector) Scan(ctx context.Context, f func(*engine.Rx) error) error {
	if rest := time.Duration(i.rest.Load()); rest > 0 {
		pause := time.NewTimer(rest)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	began := time.Now()
	err := i.Point(ctx, f)
	i.rest.Store(int64(time.Since(began)))
	return err
}

// See makes a read of a few rows.
func See[T any](v engine.Viewer, read func(*engine.Rx) (T, error)) (T, error) {
	return engine.Get(context.Background(), v.Point, read)
}

// Changed reports whether another process has committed since the last call of Changed.
func (i *Inspector) Changed() (changed bool, err error) {
	if err := i.lane.Take(context.Background(), 0, readers.AnyNumber); err != nil {
		return false, err
	}
	defer i.lane.Give(0)
	w := &i.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c == nil {
		if w.c, err = i.connect(); err != nil {
			return false, err
		}
	}
	before := w.data
	_, err = w.c.Row(func(r *sqlite.Rows) { w.data = r.Int(0) }, "PRAGMA data_version")
	if w.data != before {
		i.Mechas.Forget()
	}
	return w.data != before, err
}
