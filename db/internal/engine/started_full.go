package engine

import (
	"errors"
	"os"
	"time"

	"relay/db/file"
	"relay/db/internal/sqlite"
)

// A server that starts on a full disk cannot make the index of the log, which every
// connection shares and without which SQLite does not write. The connections of such a
// server only read, each with an index in memory, and every write is refused with
// DiskFull. Once a second the writer looks for room. When it finds room, it opens the
// file as at any start.

// ErrStartedFull refuses a transaction of a server that started on a full disk.
var ErrStartedFull = errors.New("the disk was full at the start: the log of the database has no index")

const (
	findRoomEvery = time.Second
	roomNeeded    = 128 << 10 // bytes, more than the index and the first pages of a log take
)

// findRoom opens the file for writing if the disk has room, and reports whether it did.
func (w *Store) findRoom() bool {
	if time.Since(w.roomAt) < findRoomEvery || w.Failed() != nil {
		return false
	}
	w.roomAt = time.Now()
	if lost := w.Foreign.lostFile(); lost != nil {
		w.Fail(lost)
		return false
	}
	if !hasRoom(w.Disk.Folder) {
		return false
	}
	defer w.Foreign.readers.Release()
	if !w.Foreign.readers.HoldAll(holdTimeout) {
		return false
	}
	// SQLite keeps its part of the log's index for as long as this process has the file
	// open. So all connections must be closed first.
	w.Foreign.readers.CloseHeld()
	w.C.Close()
	w.C = nil
	err := w.reopen()
	if err == nil && w.StartedFull {
		return false
	}
	if err != nil {
		w.Fail(err)
		return false
	}
	w.Opts.Logger.Info("there is room on the disk: writes are accepted", "db", w.Path)
	return true
}

// reopen opens the file for writing. If the disk has no room for that, it opens the file as
// before.
func (w *Store) reopen() error {
	role := sqlite.Reading
	c, err := file.OpenCurrent(w.Path, w.Opts.Schema)
	w.StartedFull = sqlite.IsDiskFull(err)
	if w.StartedFull {
		role = sqlite.Unindexed
		c, err = file.OpenFull(w.Path)
	}
	if err != nil {
		return err
	}
	w.C = c
	if err := w.Opts.ApplyLockWait(c); err != nil {
		return err
	}
	if err := w.Foreign.readers.Open(w.Path, role); err != nil || w.StartedFull {
		return err
	}
	if err := w.StartHelpers(); err != nil {
		return err
	}
	w.Disk.StartedFull.Store(false)
	// Another process may have found room earlier, and have written.
	w.Foreign.data, w.cachedAt = unknownVersion, unknownVersion
	w.forgetRead()
	w.Listeners.notify(KeysChanged | EntriesChanged)
	return nil
}

// hasRoom reports whether a file of some size can be written in a folder.
func hasRoom(folder string) bool {
	f, err := os.CreateTemp(folder, ".relay-room-*")
	if err != nil {
		return false
	}
	os.Remove(f.Name())       // now, so that a killed process leaves nothing behind
	defer os.Remove(f.Name()) // again, for systems where an open file cannot be removed
	defer f.Close()
	_, err = f.WriteAt(make([]byte, roomNeeded), 0)
	return err == nil
}
