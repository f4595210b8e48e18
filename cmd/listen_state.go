package cmd

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

	"relay/db/relay"
)

// bookmark is the file that says where a listener stopped; <file>.lock keeps
// others from it, who would move the place on past what we have not printed.
// set may be called
// by any goroutine; one of its own writes the file: the last place counts, so
// what comes during a write is written together.
type bookmark struct {
	path  string
	lock  *os.File
	own   relay.Address
	after string // when it was opened

	mu    sync.Mutex
	place string
	wake  chan struct{} // closed by close
	done  chan struct{}
	err   error // of the last write; to be read after done
}

// place is the content of the file.
type place struct {
	MechaID relay.Address `json:"mecha_id"`
	After   string        `json:"after"` // a message id; "": from the oldest pending one
}

// openBookmark reads the file, or makes it; path "" is the usual one. If it
// cannot be written later, abort is told.
func openBookmark(path, url string, own relay.Address, abort context.CancelCauseFunc) (*bookmark, error) {
	if path == "" {
		dir, err := stateDir()
		if err != nil {
			return nil, fmt.Errorf("%w; name a file by --state", err)
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

// hold takes the lock, for as long as the process or until close.
func (b *bookmark) hold() (err error) {
	if b.lock, err = os.OpenFile(b.path+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	ours, err := tryLock(b.lock)
	if err == nil && !ours {
		err = fmt.Errorf("another relay listen keeps its place in %s; name another file by --state", b.path)
	}
	if err != nil {
		b.lock.Close()
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
		return fmt.Errorf("%s is no file of relay listen; name another by --state", b.path)
	case p.MechaID != b.own:
		return fmt.Errorf("%s says where %s stopped, and the key is that of %s; name another file by --state", b.path, p.MechaID, b.own)
	}
	b.after, b.place = p.After, p.After
	return b.write() // better a fault now than after the first message
}

// stateDir is where programs keep such things.
func stateDir() (string, error) {
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

func (b *bookmark) set(id string) {
	b.mu.Lock()
	b.place = id
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
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

// close writes what is left. Nobody may call set any more.
func (b *bookmark) close() error {
	close(b.wake)
	<-b.done
	b.lock.Close()
	return b.err
}

// write replaces the file, so that there is a whole one at any time.
func (b *bookmark) write() error {
	b.mu.Lock()
	text, err := json.Marshal(place{b.own, b.place})
	b.mu.Unlock()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(b.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if e := f.Sync(); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), b.path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
