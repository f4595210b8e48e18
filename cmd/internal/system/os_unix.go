//go:build unix

package system

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"relay/db"
)

const AddressInUse = unix.EADDRINUSE

// StopBetweenWrites makes Ctrl-Z wait until this process has no lock on a database. A
// process that is stopped in the middle of a transaction keeps every other process from
// writing. The second call does nothing.
func StopBetweenWrites() { stopsBetweenWrites.Do(waitForStops) }

var stopsBetweenWrites sync.Once

func waitForStops() {
	if os.Getpid() == 1 {
		return // the first process of a container cannot be stopped
	}
	asked := make(chan os.Signal, 1)
	// of a terminal: Ctrl-Z, reading or writing in the background
	for _, s := range []os.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		if !signal.Ignored(s) {
			signal.Notify(asked, s)
		}
	}
	go func() {
		for range asked {
			db.WithoutLocks(func() {
				select {
				case <-asked: // one stop is enough for all signals that came until now
				default:
				}
				stopSelf()
			})
		}
	}()
}

// stopSelf stops this process and returns when it continues.
func stopSelf() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	if unix.Kill(os.Getpid(), unix.SIGSTOP) != nil {
		return
	}
	select {
	case <-resumed:
	case <-time.After(time.Second): // the system has not stopped it after all
	}
}

// OpenFiles returns how many files this process may have open, and false if no
// limit is known. Package os has raised it to the hard limit at the start.
func OpenFiles() (int, bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || uint64(l.Cur) > 1<<30 {
		return 0, false
	}
	return int(l.Cur), true
}
