//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A new node gets the file of another one in pieces. Each piece is the answer to a request, so
// the new node sets the pace. It names its snapshot by a random number. The other node copies
// its file at the first request, and removes the copy when it was taken, or without requests
// for a while.
const (
	snapshotSubject = "relay.snapshot." // and the name of the giving node
	pieceSize       = 256 << 10
	snapshotIdle    = time.Minute
	pieceWait       = 5 * time.Second
)

// wanted is a question for a snapshot.
type wanted struct {
	Request string `json:"request"`
	Offset  int64  `json:"offset"` // where the piece begins; less than 0: only the size and the hash are asked for
	Done    bool   `json:"done"`   // the snapshot was taken
}

// offered is the answer to a question without a piece.
type offered struct {
	Ready bool   `json:"ready"`
	Size  int64  `json:"size"`
	Hash  string `json:"hash"` // SHA-256, hexadecimal
	Error string `json:"error,omitempty"`
}

// snapshots is the one snapshot that a node offers at a time.
type snapshots struct {
	mu      sync.Mutex
	request string // "" without one
	file    *os.File
	path    string
	offer   offered
	idle    *time.Timer
	cancel  context.CancelFunc // ends the copying
}

func (n *Node) serveSnapshots() error {
	removeAll(filepath.Join(n.c.Dir, "snapshot-*")) // of a process that was killed
	_, err := n.nats.conn.Subscribe(snapshotSubject+n.c.Node, func(m *nats.Msg) {
		var w wanted
		if json.Unmarshal(m.Data, &w) != nil || w.Request == "" {
			return
		}
		m.Respond(n.answer(w))
	})
	return err
}

// answer returns a piece of the snapshot, which begins with "=", or the offer, as JSON.
func (n *Node) answer(w wanted) []byte {
	s := &n.giving
	s.mu.Lock()
	defer s.mu.Unlock()
	var o offered
	switch {
	case w.Done && w.Request == s.request:
		s.remove()
	case w.Done:
	case n.c.Snapshot == nil || !n.isSure():
		o.Error = "this node gives no snapshot"
	case s.request == "":
		n.makeSnapshot(w.Request)
	case s.request != w.Request:
		o.Error = "this node gives a snapshot to another one"
	default:
		s.idle.Reset(snapshotIdle)
		o = s.offer
		if o.Ready && w.Offset >= 0 && w.Offset < o.Size {
			piece := make([]byte, 1+min(pieceSize, o.Size-w.Offset))
			piece[0] = '='
			if _, err := s.file.ReadAt(piece[1:], w.Offset); err == nil {
				return piece
			} else {
				o = offered{Error: err.Error()}
			}
		}
	}
	text, _ := json.Marshal(o) // it can be
	return text
}

// makeSnapshot begins to make a snapshot. The caller has the lock.
func (n *Node) makeSnapshot(request string) {
	s := &n.giving
	ctx, cancel := context.WithCancel(n.ctx)
	path := filepath.Join(n.c.Dir, "snapshot-"+hex.EncodeToString([]byte(request))+".db")
	s.request, s.path, s.offer, s.cancel = request, path, offered{}, cancel
	s.idle = time.AfterFunc(snapshotIdle, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.request == request {
			s.remove()
		}
	})
	n.all.Go(func() {
		err := n.c.Snapshot(ctx, path)
		var f *os.File
		var size int64
		var hash string
		if err == nil {
			f, size, hash, err = openHashed(ctx, path)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && s.request == request {
			s.file, s.offer = f, offered{Ready: true, Size: size, Hash: hash}
			return
		}
		f.Close() // of nil it does nothing
		os.Remove(path)
		if s.request == request {
			n.log.Warn("no snapshot could be made for another node", "error", err)
			s.offer.Error = "no snapshot could be made: " + err.Error()
		}
	})
}

// openHashed opens a file, and returns its size and hash.
func openHashed(ctx context.Context, path string) (f *os.File, size int64, hash string, err error) {
	if f, err = os.Open(path); err != nil {
		return nil, 0, "", err
	}
	h := sha256.New()
	if size, err = io.Copy(h, stopping{ctx, f}); err != nil {
		f.Close()
		return nil, 0, "", err
	}
	return f, size, hex.EncodeToString(h.Sum(nil)), nil
}

// stopping is a reader that fails once ctx has ended.
type stopping struct {
	ctx context.Context
	io.Reader
}

func (s stopping) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.Reader.Read(p)
}

// remove forgets the snapshot and removes its file. The caller has the lock.
func (s *snapshots) remove() {
	if s.request == "" {
		return
	}
	s.cancel()
	s.idle.Stop()
	if s.file != nil {
		s.file.Close()
		os.Remove(s.path)
	}
	s.request, s.file = "", nil
}

func (s *snapshots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove()
}

// FetchSnapshot gets a copy of the file of another node, and puts it at path, where no file may
// exist. It asks one node after the other, and waits until one sends its copy, or ctx ends. The
// copy is complete and synced when it gets its name.
func (n *Node) FetchSnapshot(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already", path)
	}
	select {
	case <-n.decided:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !n.isAdmitted() {
		return n.refusal
	}
	removeAll(path + ".partial-*") // of a process that was killed
	for said := false; ; {
		var failures []error
		for _, from := range n.givers() {
			err := n.fetchFrom(ctx, from, path)
			if err == nil || errors.Is(err, errHere) {
				return err
			}
			failures = append(failures, fmt.Errorf("%s: %w", from, err))
		}
		if len(failures) == 0 {
			failures = []error{errors.New("no node is heard that follows the log")}
		}
		if !said && ctx.Err() == nil {
			said = true
			n.log.Warn("waiting for a node that gives a copy of its file", "error", errors.Join(failures...))
		}
		if !pause(ctx, askAgain) {
			return fmt.Errorf("no node gave a copy of its file: %w", errors.Join(append(failures, ctx.Err())...))
		}
	}
}

func removeAll(pattern string) {
	paths, _ := filepath.Glob(pattern)
	for _, path := range paths {
		os.Remove(path)
	}
}

// errHere is an error of this machine, which no other node can help.
var errHere = errors.New("the copy of another node's file cannot be written")

// givers returns the names of the live nodes that follow the log, the most advanced first.
func (n *Node) givers() (names []string) {
	s := n.heartbeats
	s.mu.Lock()
	defer s.mu.Unlock()
	now, best := n.elapsed(), uint64(0)
	for name, p := range s.peers {
		switch {
		case !p.isLive(now) || !p.last.Sure:
		case p.last.Applied > best:
			best = p.last.Applied
			names = append([]string{name}, names...)
		default:
			names = append(names, name)
		}
	}
	return names
}

// fetchFrom gets the copy of one node.
func (n *Node) fetchFrom(ctx context.Context, from, path string) error {
	random := make([]byte, 8)
	rand.Read(random) // never fails (crypto/rand)
	request := hex.EncodeToString(random)
	defer n.wantSnapshot(n.ctx, from, wanted{Request: request, Done: true})
	var o offered
	for !o.Ready {
		answer, err := n.wantSnapshot(ctx, from, wanted{Request: request, Offset: -1})
		if err != nil {
			return err
		}
		if err := json.Unmarshal(answer, &o); err != nil {
			return err
		}
		if o.Error != "" {
			return errors.New(o.Error)
		}
		if !o.Ready && !pause(ctx, askAgain) {
			return ctx.Err()
		}
	}
	partial := path + ".partial-" + request
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", errHere, err)
	}
	defer os.Remove(partial) // once it has its name there is nothing to remove
	err = n.fetchPieces(ctx, from, request, o, f)
	if err == nil {
		err = here(f.Sync())
	}
	if err = errors.Join(err, here(f.Close())); err != nil {
		return err
	}
	return here(os.Rename(partial, path))
}

func here(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errHere, err)
}

func (n *Node) fetchPieces(ctx context.Context, from, request string, o offered, to io.Writer) error {
	h := sha256.New()
	for offset := int64(0); offset < o.Size; {
		piece, err := n.wantSnapshot(ctx, from, wanted{Request: request, Offset: offset})
		if err != nil {
			return err
		}
		piece, whole := bytes.CutPrefix(piece, []byte("="))
		if !whole || int64(len(piece)) != min(pieceSize, o.Size-offset) {
			return errors.New("it gave its copy no more")
		}
		h.Write(piece)
		if _, err := to.Write(piece); err != nil {
			return here(err)
		}
		offset += int64(len(piece))
	}
	if hex.EncodeToString(h.Sum(nil)) != o.Hash {
		return errors.New("its copy was changed on the way")
	}
	return nil
}

// wantSnapshot sends a node one request for a snapshot, again if no answer comes.
func (n *Node) wantSnapshot(ctx context.Context, from string, w wanted) (answer []byte, err error) {
	question, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	for try := 0; try < 3; try++ {
		wait, cancel := context.WithTimeout(ctx, pieceWait)
		m, failure := n.nats.conn.RequestWithContext(wait, snapshotSubject+from, question)
		cancel()
		if err = failure; err == nil {
			return m.Data, nil
		}
		if w.Done || !pause(ctx, askAgain) {
			break
		}
	}
	return nil, err
}
