// Package admin is the way of a command to the server of a file that only the server may
// change: a Unix socket beside the file, over which the command hands its writes, and the
// server gives their outcomes. It knows nothing of what a write is.
//
// Only the user whose file it is may open the socket (mode 0600; on Windows, which has such
// sockets since 2018, the rights of the folder decide). Besides, the command must name a
// greeting that both have from the file. So nobody writes who cannot read the file, and
// nobody to the server of another file.
//
// The command sends a version, the greeting, and then each write after its length. The server
// answers each by a line of JSON, in the order in which it learns the outcomes. A write of
// length 0 asks how the server is; the answer is a JSON object of the server's.
package admin

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"relay/db/relay"
)

const (
	version = 1
	// AtOnce is how many writes of a command may wait for their outcomes; the server takes the
	// next one later.
	AtOnce   = 256
	endsIn   = 2 * time.Second        // in which a command must take its last answers when the server stops
	again    = 100 * time.Millisecond // the pause after a connection that could not be taken
	mostPath = 100                    // bytes of the path of a Unix socket, on every system
)

// An answer is the outcome of a write.
type answer struct {
	N      uint64          `json:"n"`              // of the write, from 1
	Code   relay.Code      `json:"code,omitempty"` // "": it was done
	Detail string          `json:"detail,omitempty"`
	Status json.RawMessage `json:"status,omitempty"` // of a question
}

// Socket gives the path of the socket beside the file at path, as short as it can be named
// from here. Error: the path is too long for a socket, or the file cannot be looked up.
func Socket(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	socket := real + ".admin.sock"
	if here, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(here, socket); err == nil && len(short) < len(socket) {
			socket = short
		}
	}
	if len(socket) > mostPath {
		return "", fmt.Errorf("the path %s is too long for a socket (%d bytes; %d fit): put the file into a folder with a shorter path", socket, len(socket), mostPath)
	}
	return socket, nil
}

// A Server takes the writes of commands.
type Server struct {
	listener net.Listener
	greeting []byte
	handler  Handler
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool
}

// Listen opens the socket beside the file at path, whose server the caller must be: a socket
// that is there already is removed. Serve and Close must follow, or Close alone.
func Listen(path string, greeting []byte) (*Server, error) {
	socket, err := Socket(path)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) { // of a server that was killed
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the socket for commands: %w", err)
	}
	s := &Server{listener: l, greeting: greeting, conns: map[net.Conn]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// A Handler is what a Server needs of the store. Its functions are called by several
// goroutines. Their ctx ends when the server closes.
type Handler struct {
	// Apply is called for each write, for those of one command in their order. It, or a
	// goroutine, calls done once with the outcome.
	Apply func(ctx context.Context, write []byte, done func(error))
	// Status gives a JSON object.
	Status func(ctx context.Context) (json.RawMessage, error)
	// Fault is told why no connection could be taken.
	Fault func(error)
}

// Serve takes writes from now on, in goroutines of its own.
func (s *Server) Serve(h Handler) {
	s.handler = h
	s.wg.Go(s.accept)
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		switch {
		case s.ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return
		case err != nil: // such as too many open files
			s.handler.Fault(err)
			select {
			case <-time.After(again):
			case <-s.ctx.Done():
			}
			continue
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(c) })
	}
}

// serve takes the writes of one command, and returns once it has answered each.
func (s *Server) serve(c net.Conn) {
	answers := make(chan answer, AtOnce)
	places := make(chan struct{}, AtOnce)
	written := make(chan struct{})
	go func() {
		defer close(written)
		lines := json.NewEncoder(c)
		for a := range answers {
			_ = lines.Encode(a) // an error means that the command has gone
			<-places
		}
	}()
	s.take(c, answers, places)
	close(answers)
	<-written
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// take takes the writes of a connection until it ends, and waits for their outcomes.
func (s *Server) take(c net.Conn, answers chan<- answer, places chan<- struct{}) {
	var under sync.WaitGroup // writes without an outcome
	defer under.Wait()
	r := bufio.NewReader(c)
	hello := make([]byte, 1+len(s.greeting))
	if _, err := io.ReadFull(r, hello); err != nil || hello[0] != version || string(hello[1:]) != string(s.greeting) {
		return
	}
	for n := uint64(1); ; n++ {
		write, err := readWrite(r)
		if err != nil {
			return
		}
		places <- struct{}{}
		under.Add(1)
		s.handle(write, func(status json.RawMessage, err error) {
			defer under.Done()
			a := answer{N: n, Status: status}
			var e *relay.Error
			if errors.As(err, &e) {
				a.Code, a.Detail = e.Code, e.Detail
			} else if err != nil {
				a.Code, a.Detail = relay.Internal, err.Error()
			}
			answers <- a // there is a place for it
		})
	}
}

func (s *Server) handle(write []byte, done func(json.RawMessage, error)) {
	if len(write) == 0 {
		go func() { done(s.handler.Status(s.ctx)) }()
		return
	}
	s.handler.Apply(s.ctx, write, func(err error) { done(nil, err) })
}

// MostBytes is how many bytes a write may have.
const MostBytes = 8 << 20

func readWrite(r *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if n > MostBytes {
		return nil, errors.New("a write is too long")
	}
	write := make([]byte, n)
	_, err = io.ReadFull(r, write)
	return write, err
}

// Close takes no more writes, removes the socket, and waits until all writes have their
// outcomes. It may be called again. Close of nil does nothing.
func (s *Server) Close() {
	if s == nil {
		return
	}
	s.cancel()
	s.listener.Close() // this also removes the socket
	s.mu.Lock()
	for c := range s.conns {
		c.SetReadDeadline(time.Now())
		c.SetWriteDeadline(time.Now().Add(endsIn))
	}
	s.mu.Unlock()
	s.wg.Wait()
}
