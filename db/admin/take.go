package admin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"relay/db/file"
	"relay/db/lock"
	"relay/db/relay"
)

// The errors of a file that another process has. A message begins with the path.
var (
	ErrServed = errors.New("is already being served by another process")
	ErrInUse  = errors.New("is in use: another command works on it, " +
		"or the relay that serves it takes no commands (its log says why); nothing was done")
)

const (
	takeFor   = 10 * time.Second // how long a process waits for a busy file, or while its server starts or stops
	takeAgain = 5 * time.Millisecond
)

// Take locks the file at path; or, if a server has it, returns a client that is connected. serve
// says that the caller is to be the server; then another server is an error.
func Take(path string, serve bool) (*file.Locked, *Client, error) {
	for end := time.Now().Add(takeFor); ; time.Sleep(takeAgain) {
		server, err := find(path, serve)
		if err != nil || server != nil {
			return nil, server, err
		}
		held, err := file.Lock(path)
		switch {
		case !errors.Is(err, lock.ErrHeld):
			return held, nil, err
		case !time.Now().Before(end):
			return nil, nil, fmt.Errorf("%s %w", path, ErrInUse)
		}
	}
}

// find returns a client of the server of the file, or nil if no server answers.
func find(path string, serve bool) (*Client, error) {
	if socket, err := Socket(path); err != nil {
		return nil, nil
	} else if _, err := os.Lstat(socket); err != nil {
		return nil, nil
	}
	server, err := NewClient(path)
	if err != nil {
		return nil, nil // the lock decides who may say why
	}
	if serve {
		if conn, err := server.dial(); err == nil { // even if it takes no requests now
			conn.Close()
			return nil, fmt.Errorf("%s %w", path, ErrServed)
		}
		return nil, nil
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	switch err := server.connect(); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the relay that serves %s does not answer; nothing was done", path)
	case errors.Is(err, ErrNoServer):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w; nothing was done", path, err)
	}
	return server, nil
}

// NewClient makes the client for the server of the file at path, even if no server runs.
func NewClient(path string) (*Client, error) {
	c, _, err := file.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	ids, err := file.ReadIDs(c, path)
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, file.Explain(path, err)
	}
	return &Client{path: path, greeting: Greeting(ids)}, nil
}

// Greeting returns the secret that a command and the server of a file share.
func Greeting(ids *relay.IDs) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(ids.Hash('a', 0, []byte("admin"))))
}
