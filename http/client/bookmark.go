package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"relay/db/lock"
	"relay/db/relay"
)

// bookmark is the file in which a listener keeps its place. A lock on
// <file>.lock keeps other listeners away: they would move the place past
// messages that this one has not printed.
//
// set may be called by any goroutine. One goroutine writes the file, and only
// the last place is kept.
type bookmark struct {
	path  string
	lock  *lock.Held
	own   relay.Address
	after string // the place that was in the file at the start

	mu    sync.Mutex
	place string
	wake  chan struct{} // closed by close
	done  chan struct{} // closed when the file is no longer written
	err   error         // of the last write; read it after done
}

// place is the content of the file.
type place struct {
	MechaID relay.Address `json:"mecha_id"`
	After   string        `json:"after"` // the last message that is done; "" begins with the oldest pending one
}

// StateError says that a file cannot keep the place of a listener.
type StateError struct {
	Path   string
	Reason string // a sentence, to which advice can be added
}

func (e *StateError) Error() string { return e.Reason + " name another file" }

// openBookmark reads the file, or makes it. DefaultState is a file in the user's
// directory for state. If the file cannot be written later, abort is called.
func openBookmark(path, url string, own relay.Address, abort context.CancelCauseFunc) (*bookmark, error) {
	if path == DefaultState {
		dir, err := StateDir()
		if err != nil {
			return nil, &StateError{path, err.Error() + ";"}
		}
		sum := sha256.Sum256([]byte(url))
		path = filepath.Join(dir, "relay", fmt.Sprintf("listen-%s-%s.json", own, hex.EncodeToString(sum[:4])))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
	}
	b := &bookmark{path: path, own: own, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if err := b.hold(); err != nil {
		return nil, err
	}
	if err := b.open(); err != nil {
		b.lock.Close()
		return nil, err
	}
	go b.run(abort)
	return b, nil
}

// hold takes the lock. It lasts until close, or the end of the process.
func (b *bookmark) hold() (err error) {
	b.lock, err = lock.File(b.path + ".lock")
	if errors.Is(err, lock.ErrHeld) {
		return &StateError{b.path, fmt.Sprintf("another relay listener keeps its place in %s;", b.path)}
	}
	return err
}

// open reads the file, or makes it.
func (b *bookmark) open() error {
	text, err := os.ReadFile(b.path)
	var p place
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.MechaID = b.own
	case err != nil:
		return err
	case json.Unmarshal(text, &p) != nil || p.MechaID == "":
		return &StateError{b.path, fmt.Sprintf("%s is not a file of relay listeners;", b.path)}
	case p.MechaID != b.own:
		return &StateError{b.path, fmt.Sprintf("%s says where %s stopped, but the key belongs to %s;",
			b.path, p.MechaID, b.own)}
	}
	b.after, b.place = p.After, p.After
	return b.write() // so that a fault shows now, not after the first message
}

// StateDir is the user's directory for the state of programs.
func StateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	switch runtime.GOOS {
	case "windows", "darwin":
		return os.UserConfigDir()
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state"), err
}

// set moves the place to a message. The file has it some time later.
func (b *bookmark) set(id string) {
	b.mu.Lock()
	b.place = id
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default: // run is about to write
	}
}

func (b *bookmark) run(abort context.CancelCauseFunc) {
	defer close(b.done)
	for range b.wake {
		if b.err = b.write(); b.err != nil {
			abort(fmt.Errorf("the place cannot be kept: %w", b.err))
			return
		}
	}
}

// close writes the last place. After it, set must not be called.
func (b *bookmark) close() error {
	close(b.wake)
	<-b.done
	b.lock.Close()
	return b.err
}

// write replaces the file.
func (b *bookmark) write() error {
	b.mu.Lock()
	text, err := json.Marshal(place{b.own, b.place})
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return lock.Replace(b.path, append(text, '\n'))
}
