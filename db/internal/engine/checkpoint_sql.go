package engine

import (
	"sync/atomic"
	"time"

	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
)

// A goroutine copies the write-ahead log into the database, on its own connection, while
// the writer continues (a PASSIVE checkpoint blocks no one). The writer copies the little
// that is left between two transactions. SQLite then restarts the log at its beginning.
// So the log stays near copyAfterPages, and no commit waits for a whole checkpoint. A
// writer that is faster than the disk waits when the log has maxLogPages.
const (
	copyAfterPages = 2000 // pages of 4 KiB in the log after which it is copied
	maxLogPages    = 8000 // pages in the log after which the writer waits for the copy
)

const (
	// holdTimeout is far longer than a read takes. A writer that waited less would let
	// the log grow for as long as readers are slow.
	holdTimeout = 10 * time.Second
	// holdAgain is how long the readers are left alone after holding them did not help.
	holdAgain = 5 * time.Second
	// copyFailed is how long the log is left alone after it could not be copied.
	copyFailed = time.Second
	// copyForeign is how often the pages of other processes may be copied.
	copyForeign = time.Second
)

// checkpoints is the writer's part of copying the log. As background work, it copies the
// pages that other processes wrote, even if few follow, because a compact command frees
// space only when its pages are copied.
type checkpoints struct {
	w          *Store
	readers    *readers.Pool
	wanted     chan struct{} // asks the copying goroutine to copy
	done       chan struct{} // signals that it has copied
	fault      atomic.Bool   // the last copy of the copying goroutine failed
	running    bool          // the copying goroutine is at work
	started    time.Time     // when that goroutine was started last, by the real clock
	CopySoon   bool          // another process has written to the log
	checked    time.Time     // when Do ran last, by the real clock
	heldInVain time.Time     // when holding the readers did not help
	stuck      atomic.Int64  // since when another process has kept the log from being copied, in Unix ns, or 0
}

func newCheckpoints(w *Store, pool *readers.Pool) checkpoints {
	return checkpoints{w: w, readers: pool, wanted: make(chan struct{}, 1), done: make(chan struct{}, 1)}
}

// CopyInBackground is the copying goroutine. It works on c and ends when closed is.
func (k *checkpoints) CopyInBackground(c *sqlite.Conn, closed <-chan struct{}) {
	defer c.Close()
	for {
		select {
		case <-closed: // the writer has ended before, so it does not wait for done
			return
		case <-k.wanted:
		}
		_, err := c.Checkpoint()
		k.fault.Store(err != nil)
		if err != nil {
			k.w.Opts.Logger.Warn("the log cannot be copied into the database for now, and grows meanwhile", "error", err)
			if sqlite.IsFatal(err) {
				k.w.Fail(err)
			}
		}
		k.done <- struct{}{}
	}
}

// begin is called after every transaction. It has the log copied when the log has
// enough pages. After a fault it does nothing, because a second fsync could hide the
// failure of the first.
func (k *checkpoints) begin() {
	if k.w.Failed() != nil {
		return
	}
	left := k.w.C.NotCopied()
	switch {
	case !k.running && left >= copyAfterPages && !k.failing():
		k.start()
	case k.running && left >= maxLogPages:
		<-k.done
		k.finish()
	case k.running:
		k.finishIfDone()
	}
}

// start has the copying goroutine copy the log.
func (k *checkpoints) start() {
	k.wanted <- struct{}{}
	k.running, k.started = true, time.Now()
}

// failing reports whether the copying goroutine has failed a moment ago, as on a full disk.
// Then begin leaves it alone for a while, instead of starting it after every transaction.
func (k *checkpoints) failing() bool { return k.fault.Load() && time.Since(k.started) < copyFailed }

// finishIfDone calls finish if the copying goroutine is done.
func (k *checkpoints) finishIfDone() {
	select {
	case <-k.done:
		k.finish()
	default:
	}
}

// wait waits until the copying goroutine is done, if it is at work.
func (k *checkpoints) wait() {
	if k.running {
		<-k.done
		k.running = false
	}
}

func (k *checkpoints) Due(time.Time) bool {
	again := k.stuck.Load() != 0 && time.Since(k.checked) >= holdAgain // even if nothing more is written
	return (again || k.CopySoon && time.Since(k.checked) >= copyForeign) && k.w.Failed() == nil
}

func (k *checkpoints) Do(time.Time) {
	k.checked = time.Now()
	if !k.running {
		k.start()
		return
	}
	k.finishIfDone()
}

// finish copies the rest of the log. Readers that overlap without a pause keep SQLite
// from restarting the log. If the log has become long, the readers are held for the
// moment that a restart takes.
func (k *checkpoints) finish() {
	k.running, k.CopySoon = false, false
	w := k.w
	if w.Failed() != nil {
		return
	}
	frames, err := w.C.Checkpoint()
	if err == nil && frames > maxLogPages && time.Since(k.heldInVain) > holdAgain {
		k.readers.Hold(holdTimeout)
		_, err = w.C.Checkpoint()
		if w.C.NotCopied() > 0 {
			k.heldInVain = time.Now() // another process is reading, such as relay backup or relay check
			k.stuck.CompareAndSwap(0, k.heldInVain.UnixNano())
		}
		k.readers.Release()
	}
	if k.stuck.Load() != 0 && w.C.NotCopied() < copyAfterPages {
		k.stuck.Store(0)
	}
	if err != nil && sqlite.IsFatal(err) {
		w.Fail(err)
	}
}
