package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"relay/db/internal/platform"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// watch is the goroutine that notices how other processes use the file: that they have
// changed keys, Mechas or profiles, or keep the write lock. It has a connection of its own
// and waits for no other goroutine. So a key is refused soon after its revocation, even if
// the writer and the readers are busy.
type watch struct {
	w    *Store
	path string
	c    *sqlite.Conn // nil before the first poll
	data int64        // PRAGMA data_version at the last poll
	keys int64        // the version of the keys at the last poll; it grows with every change

	held     time.Time                 // since when another process has had the write lock; zero if none has it
	reported bool                      // held has been logged
	Locked   atomic.Pointer[time.Time] // held, once it has been logged; nil while writes work

	clock, passed time.Time // the store's clock and the machine's running time, at the last poll

	grows time.Time // when watch last logged that the WAL grows; zero if it does not

	// reports has the lines that are to be logged. A separate goroutine logs them, because
	// finding the name of a process can take seconds on a busy machine.
	reports chan func()
}

const (
	watchEvery = 200 * time.Millisecond
	// lockedAfter is how long another process may have the write lock before watch reports
	// it. Commands have the lock for milliseconds.
	lockedAfter = time.Second
)

// newWatch makes the watch of the file at path. Its first poll finds that everything has
// changed.
func newWatch(w *Store, path string) *watch {
	return &watch{w: w, path: path, data: -1, keys: -1, reports: make(chan func(), 16), clock: w.Opts.Now().Round(0),
		passed: time.Now()}
}

// Open opens the connection. The start calls it, while the files are known to be in their
// places. If the disk has no room for that, the next poll tries again.
func (h *watch) Open() (err error) {
	h.c, err = sqlite.Open(h.path, sqlite.Polling)
	return err
}

// Run polls the file several times a second until closed is closed.
func (h *watch) Run(closed <-chan struct{}) {
	defer func() {
		if h.c != nil {
			h.c.Close()
		}
	}()
	var reporter sync.WaitGroup
	reporter.Go(func() {
		for report := range h.reports {
			report()
		}
	})
	defer reporter.Wait()
	defer close(h.reports)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-closed:
			return
		case <-tick.C:
		}
		if h.w.Failed() == nil {
			h.poll()
		}
	}
}

// poll notifies the listeners of changes, and finds out whether the write lock is free. It
// cannot distinguish this process's own commits from others, so listeners are called twice
// for those.
func (h *watch) poll() {
	h.checkClock()
	if h.c == nil && h.Open() != nil {
		return
	}
	data, err := h.c.Number("PRAGMA data_version")
	changed := data != h.data
	if err == nil && changed {
		err = h.notifyKeys(data)
	}
	if err == nil && h.w.Opts.Serve {
		err = h.checkWriteLock(changed)
		h.checkLog()
	}
	if err != nil && sqlite.IsFatal(err) {
		h.w.Fail(err)
	} // after any other error, the next poll tries again
}

// notifyKeys calls the listeners if keys have changed.
func (h *watch) notifyKeys(data int64) error {
	keys, err := h.c.Number("SELECT value FROM setting WHERE name = 'keys_version'")
	if err == nil && keys != h.keys {
		h.w.Listeners.notify(KeysChanged)
	}
	if err == nil {
		h.data, h.keys = data, keys
	}
	return err
}

// checkWriteLock finds out whether another process has the write lock. committed says
// that there was a commit since the last poll, so the lock was free in between.
func (h *watch) checkWriteLock(committed bool) error {
	since, err := h.lockedSince()
	switch {
	case err != nil:
		return err
	case since.IsZero():
		h.free()
		return nil
	case committed:
		h.free()
		h.held = time.Now()
	case h.held.IsZero():
		h.held = since
	}
	if !h.reported && time.Since(h.held) >= lockedAfter {
		h.report()
	}
	return nil
}

// lockedSince returns since when another process has had the write lock, or zero. If the
// writer waits for the lock, another process has it. If the writer is idle, lockedSince tries
// to take the lock.
func (h *watch) lockedSince() (time.Time, error) {
	if since, waits := h.w.lock.waits(); waits {
		return since, nil
	}
	if h.w.lock.has() {
		return time.Time{}, nil
	}
	err := h.c.BeginWrite()
	h.c.Rollback()
	if sqlite.IsBusy(err) {
		if h.w.lock.has() { // the writer was faster
			return time.Time{}, nil
		}
		return time.Now(), nil
	}
	return time.Time{}, err
}

// report logs that another process has the lock, and which one if that can be found out.
func (h *watch) report() {
	since := h.held
	h.reported = true
	h.Locked.Store(&since)
	h.queueReport(func() {
		h.w.Opts.Logger.Warn("another process holds the write lock: nothing can be written until it releases the lock",
			"since", relay.FormatTime(since), "holder", platform.Holder(h.path, platform.WriteLock))
	})
}

// jump is how far the clock may deviate between two polls before that is logged.
const jump = time.Minute

// checkClock logs that the clock was set. The relay follows the clock nevertheless, because
// a wrong clock is indistinguishable from a machine that has slept.
func (h *watch) checkClock() {
	clock, passed := h.w.Opts.Now().Round(0), time.Now() // without its monotonic reading, the clock shows that it was set
	if by := clock.Sub(h.clock) - passed.Sub(h.passed); by.Abs() >= jump {
		h.w.Opts.Logger.Warn("the clock was set, or the machine has slept: messages are stamped, and expire, by the clock",
			"by", by.Round(time.Second))
	}
	h.clock, h.passed = clock, passed
}

const (
	stuckAfter = 10 * time.Second // a backup or a check of a small file takes less
	stuckEvery = time.Minute
)

// checkLog logs that the WAL grows because another process reads an old state of the
// file. It also logs the end of that.
func (h *watch) checkLog() {
	stuck := h.w.Checkpoints.stuck.Load()
	switch {
	case stuck == 0 && !h.grows.IsZero():
		h.grows = time.Time{}
		h.queueReport(func() {
			h.w.Opts.Logger.Info("the database's log is copied again; the next writes truncate it",
				"log_bytes", sqlite.LogSize(h.path))
		})
	case stuck != 0 && time.Since(time.Unix(0, stuck)) >= stuckAfter && time.Since(h.grows) >= stuckEvery:
		h.grows = time.Now()
		h.queueReport(func() {
			h.w.Opts.Logger.Warn("another process reads an old state of the database, so its log cannot be truncated, "+
				"and grows with every write",
				"log_bytes", sqlite.LogSize(h.path), "since", relay.FormatTime(time.Unix(0, stuck)), "holder",
				platform.Holder(h.path, platform.SnapshotLock))
		})
	}
}

// queueReport queues a report. If too many are waiting, it drops the report.
func (h *watch) queueReport(report func()) {
	select {
	case h.reports <- report:
	default:
	}
}

// free notes that the lock is free, and logs that if report has logged the opposite.
func (h *watch) free() {
	if h.reported {
		held := int(time.Since(h.held).Seconds())
		h.queueReport(func() {
			h.w.Opts.Logger.Info("the write lock of the database is free again", "held_seconds", held)
		})
	}
	h.held, h.reported = time.Time{}, false
	h.Locked.Store(nil)
}

// lockState says whether the writer has the write lock or waits for it. The writer sets
// it, and the watch reads it.
type lockState struct{ v atomic.Int64 } // noLock, hasLock, or since when the writer waits, in Unix ns

const (
	noLock  = 0
	hasLock = -1
)

func (l *lockState) wait()     { l.v.Store(time.Now().UnixNano()) }
func (l *lockState) begin()    { l.v.Store(hasLock) }
func (l *lockState) end()      { l.v.Store(noLock) }
func (l *lockState) has() bool { return l.v.Load() == hasLock }

// waits reports whether the writer waits for the lock, and since when.
func (l *lockState) waits() (since time.Time, waits bool) {
	state := l.v.Load()
	return time.Unix(0, state), state != noLock && state != hasLock
}
