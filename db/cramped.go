package db

import (
	"errors"
	"os"
	"time"

	"relay/db/file"
	"relay/db/internal/sqlite"
)

// A server that starts on a full disk cannot make the index of the log, which every
// connection shares and without which SQLite does not write. Such a server is cramped:
// its connections only read, each with an index in memory, and every write is refused
// with DiskFull. Once a second the writer looks for room. When there is some, it opens
// the file as at any start.

// errCramped refuses a transaction of a cramped server.
var errCramped = errors.New("the disk was full at the start: the log of the database has no index")

const (
	findRoomEvery = time.Second
	roomNeeded    = 128 << 10 // bytes, more than the index and the first pages of a log take
)

// findRoom ends the cramped state if the disk has room, and tells whether it did.
func (w *writer) findRoom() bool {
	if time.Since(w.roomAt) < findRoomEvery || w.failed() != nil {
		return false
	}
	w.roomAt = time.Now()
	if lost := w.foreign.lostFile(); lost != nil {
		w.fail(lost)
		return false
	}
	if !hasRoom(w.disk.folder) {
		return false
	}
	defer w.foreign.readers.Release()
	if !w.foreign.readers.HoldAll(holdTimeout) {
		return false
	}
	// SQLite keeps its part of the log's index for as long as this process has the file
	// open. So all connections must be closed first.
	w.foreign.readers.CloseHeld()
	w.c.Close()
	w.c = nil
	err := w.reopen()
	if err == nil && w.cramped {
		return false
	}
	if err != nil {
		w.fail(err)
		return false
	}
	w.opts.Logger.Info("there is room on the disk: writes are accepted", "db", w.path)
	return true
}

// reopen opens the file for writing. If the disk has no room for that, it opens the file as
// it was open before.
func (w *writer) reopen() error {
	role := sqlite.Reading
	c, err := file.OpenCurrent(w.path, w.opts.Schema, true)
	w.cramped = sqlite.IsDiskFull(err)
	if w.cramped {
		role = sqlite.Unindexed
		c, err = file.OpenFull(w.path)
	}
	if err != nil {
		return err
	}
	w.c = c
	if err := w.opts.applyLockWait(c); err != nil {
		return err
	}
	if err := w.foreign.readers.Open(w.path, role); err != nil || w.cramped {
		return err
	}
	if err := w.startHelpers(); err != nil {
		return err
	}
	w.disk.cramped.Store(false)
	// Another process may have found room earlier, and have written.
	w.foreign.data, w.cachedAt = unknownVersion, unknownVersion
	w.forgetRead()
	w.listeners.tell(keysChanged | entriesChanged)
	return nil
}

// hasRoom tells whether a file of some size can be written in a folder.
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
