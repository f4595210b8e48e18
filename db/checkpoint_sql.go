package db

import (
	"time"

	"relay/db/internal/sqlite"
)

// The write-ahead log is copied back into the database by a goroutine of its
// own, on its own connection, while the writer goes on (PASSIVE: nobody waits).
// What is left then is little, and the writer copies it itself between two
// transactions, after which SQLite starts the log from its beginning. So the
// log stays near copyAfterPages and no commit waits for a whole checkpoint.
// A writer that outruns the disk waits, before the log gets out of hand.
const (
	copyAfterPages = 1000 // pages of 8 KiB that may wait to be copied
	maxLogPages    = 4000 // … before the writer waits
)

const (
	// holdTimeout is far longer than any read takes: a writer that gave up sooner
	// would leave the log to grow for as long as readers are slow.
	holdTimeout = 10 * time.Second
	// holdAgain is how long the readers are left alone after holding them back was
	// of no use.
	holdAgain = 5 * time.Second
	// copyForeign is how often the writer looks after what other processes wrote.
	copyForeign = time.Second
)

// checkpoints is the writer's side of the copying. As a servant it copies what
// other processes have written soon, however little comes after it: compact has
// given space back only then.
type checkpoints struct {
	w          *writer
	readers    *readerPool
	wanted     chan struct{} // to the goroutine that copies
	done       chan struct{} // from it
	running    bool
	copySoon   bool      // another process has written to the log
	checked    time.Time // by the real clock
	heldInVain time.Time // when holding the readers back did not help
}

func newCheckpoints(w *writer, readers *readerPool) checkpoints {
	return checkpoints{w: w, readers: readers, wanted: make(chan struct{}, 1), done: make(chan struct{}, 1)}
}

// copyInBackground copies, on c, when the writer asks for it, until closed.
func (k *checkpoints) copyInBackground(c *sqlite.Conn, closed <-chan struct{}) {
	defer c.Close()
	for {
		select {
		case <-closed: // after the writer has ended: it never waits in vain
			return
		case <-k.wanted:
		}
		if _, err := c.Checkpoint(); err != nil {
			k.w.opts.Logger.Warn("background checkpoint", "error", err)
			if sqlite.IsFatal(err) {
				k.w.fail(err)
			}
		}
		k.done <- struct{}{}
	}
}

// begin is called after every transaction. It has the log copied when enough has
// come together. After a fault it does nothing: a second fsync could hide the
// failure of the first.
func (k *checkpoints) begin() {
	if k.w.failed() != nil {
		return
	}
	left := k.w.c.NotCopied()
	switch {
	case !k.running && left >= copyAfterPages:
		k.start()
	case k.running && left >= maxLogPages:
		<-k.done
		k.finish()
	case k.running:
		k.finishIfDone()
	}
}

func (k *checkpoints) start() {
	k.wanted <- struct{}{}
	k.running = true
}

func (k *checkpoints) finishIfDone() bool {
	select {
	case <-k.done:
		k.finish()
		return true
	default:
		return false
	}
}

// wait waits for the copying that is under way.
func (k *checkpoints) wait() {
	if k.running {
		<-k.done
		k.running = false
	}
}

func (k *checkpoints) due(time.Time) bool {
	return k.copySoon && time.Since(k.checked) >= copyForeign && k.w.failed() == nil
}

func (k *checkpoints) do(time.Time) {
	k.checked = time.Now()
	if !k.running {
		k.start()
		return
	}
	k.copySoon = !k.finishIfDone()
}

// finish copies what is left. Readers that overlap without a pause keep SQLite
// from starting the log anew; when it has grown through that, they are held back
// for the moment that it takes.
func (k *checkpoints) finish() {
	k.running = false
	w := k.w
	if w.failed() != nil {
		return
	}
	frames, err := w.c.Checkpoint()
	if err == nil && frames > maxLogPages && time.Since(k.heldInVain) > holdAgain {
		held := k.readers.hold(holdTimeout)
		_, err = w.c.Checkpoint()
		if w.c.NotCopied() > 0 {
			k.heldInVain = time.Now() // another process reads: a backup, or relay check
		}
		k.readers.release(held)
	}
	if err != nil && sqlite.IsFatal(err) {
		w.fail(err)
	}
}
