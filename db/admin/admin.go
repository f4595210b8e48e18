// Package admin connects a command to the server of a file: by a Unix socket next to the file, over
// which the command sends its writes and questions, and the server returns their outcomes. It knows
// nothing of what a write or a question is.
//
// Only a user who may write the file may open the socket. On Windows, which has had such sockets
// since 2018, the rights of the folder decide. The command must also send a greeting that only
// readers of this file know. So nobody can write without reading the file, and no command can
// reach the server of another file that is not a copy of it.
//
// A command sends the version of the protocol and the greeting. The server answers with a line of
// JSON whose n is 0. Then the command sends its requests: the length, then 'w' and a write, or 'q'
// and a question. The server answers each request with a line of JSON, as soon as it knows the
// outcome. Before the last line of a question, other lines report its progress. If the server closes
// the connection, it first sends a second line whose n is 0, with the reason. Requests that have no
// outcome by then were not carried out. If an outcome could not be sent, the connection ends without
// that line, and the command does not know which requests were carried out.
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
	version = 2
	// AtOnce is how many writes of a command may wait for their outcomes; further ones wait.
	AtOnce   = 256
	maxConns = 128                    // commands at the same time
	greetsIn = 5 * time.Second        // within which a command must send the greeting
	endsIn   = 2 * time.Second        // within which a command must take an answer when the server stops
	again    = 100 * time.Millisecond // the pause after a connection that could not be accepted
	maxPath  = 100                    // bytes of the path of a Unix socket, on every system
)

// An answer is the server's answer to a request.
type answer struct {
	N       uint64          `json:"n"`              // of the request, from 1; 0: of the connection
	Code    relay.Code      `json:"code,omitempty"` // "" if it was done
	Detail  string          `json:"detail,omitempty"`
	Outcome json.RawMessage `json:"outcome,omitempty"` // of a question
	More    bool            `json:"more,omitempty"`    // the question is not done: this is the outcome so far
}

// fail puts an error into the answer.
func (a *answer) fail(err error) {
	var e *relay.Error
	if errors.As(err, &e) {
		a.Code, a.Detail = e.Code, e.Detail
	} else if err != nil {
		a.Code, a.Detail = relay.Internal, err.Error()
	}
}

// Socket returns the path of the socket of the file at path. Error: the file cannot be
// looked up.
func Socket(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	return real + ".admin.sock", err
}

// short returns a name of a socket that is short enough for the system: if need be, by a
// link to its folder, until done is called.
func short(socket string) (name string, done func(), err error) {
	if len(socket) <= maxPath {
		return socket, func() {}, nil
	}
	temp, rest := os.TempDir(), len("/relay-1234567890/d/")+len(filepath.Base(socket))
	if len(temp)+rest > maxPath && len("/tmp")+rest <= maxPath {
		temp = "/tmp" // TMPDIR is long, too
	}
	dir, err := os.MkdirTemp(temp, "relay-")
	if err != nil { // TMPDIR may name a missing folder
		dir, err = os.MkdirTemp("/tmp", "relay-")
	}
	if err != nil {
		return "", nil, err
	}
	done = func() { os.RemoveAll(dir) }
	link := filepath.Join(dir, "d")
	name = filepath.Join(link, filepath.Base(socket))
	if err = os.Symlink(filepath.Dir(socket), link); err == nil && len(name) > maxPath {
		err = fmt.Errorf("its name is too long for a socket in its folder: give the file a shorter one")
	}
	if err != nil {
		done()
	}
	return name, done, err
}

// A Server takes the requests of commands.
type Server struct {
	listener *net.UnixListener
	socket   string
	greeting []byte
	handler  Handler
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool
}

// Listen opens the socket of the file at path, whose server the caller must be. It removes an
// existing socket. share sets the rights of other users. Serve and Close must follow, or
// Close alone.
func Listen(path string, greeting []byte, share func(socket string) error) (*Server, error) {
	socket, err := Socket(path)
	if err != nil {
		return nil, err
	}
	remove(socket) // of a server that was killed
	name, done, err := short(socket)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the name may be gone by then
	s := &Server{listener: l, socket: socket, greeting: greeting, conns: map[net.Conn]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := share(socket); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// remove removes a socket, and nothing else that has its name.
func remove(socket string) {
	if info, err := os.Lstat(socket); err == nil && info.Mode()&os.ModeSocket != 0 {
		os.Remove(socket)
	}
}

// A Handler has the functions of the store that a Server calls. Its functions are called
// by several goroutines. Their ctx ends when the server closes.
type Handler struct {
	// Apply is called for each write, for those of one command in their order. It, or a
	// goroutine, calls done once with the outcome.
	Apply func(ctx context.Context, write []byte, done func(error))
	// Answer answers a question, by an outcome and perhaps an error as well; say sends the outcome
	// so far. ctx also ends when the command withdraws the question, or is gone.
	Answer func(ctx context.Context, question []byte, say func(json.RawMessage)) (json.RawMessage, error)
	// Fault is called with the reason why no connection could be accepted.
	Fault func(error)
}

// Serve starts taking requests, in goroutines of its own.
func (s *Server) Serve(h Handler) {
	s.handler = h
	s.wg.Go(s.accept)
}

func (s *Server) accept() {
	for s.ctx.Err() == nil {
		c, err := s.listener.Accept()
		if err != nil { // such as too many open files, or the end of the listener
			if s.ctx.Err() == nil {
				s.handler.Fault(err)
			}
			select {
			case <-time.After(again):
			case <-s.ctx.Done():
			}
			continue
		}
		if err := s.admit(c); err != nil {
			s.end(c, err)
			continue
		}
		s.wg.Go(func() { s.serve(c) })
	}
}

// admit notes a connection, so that Close ends it. Errors: Overloaded; ShuttingDown, if Close
// has been called.
func (s *Server) admit(c net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return errStops()
	case len(s.conns) >= maxConns:
		return relay.Errorf(relay.Overloaded, "%d commands speak to the relay at the same time, and there can be no more",
			maxConns)
	}
	s.conns[c] = true
	return nil
}

func errStops() error {
	return relay.Errorf(relay.ShuttingDown, "the relay that serves the file stops; nothing was done")
}

// end ends a connection, and says why.
func (s *Server) end(c net.Conn, why error) {
	a := answer{}
	a.fail(why)
	c.SetWriteDeadline(time.Now().Add(endsIn))
	_ = json.NewEncoder(c).Encode(a) // an error means that the command has gone
	c.Close()
}

// serve takes the requests of one command, and returns once it has answered each.
func (s *Server) serve(c net.Conn) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	}()
	r := bufio.NewReader(c)
	hello := make([]byte, 1+len(s.greeting))
	s.readWithin(c, greetsIn)
	if _, err := io.ReadFull(r, hello); err != nil || string(hello[1:]) != string(s.greeting) {
		c.Close()
		return
	}
	s.readWithin(c, 0)
	if hello[0] != version {
		s.end(c, relay.Errorf(relay.InvalidRequest, "the relay that serves the file is of another version than this command"))
		return
	}
	t := talk{Server: s, answers: make(chan answer, AtOnce), places: make(chan struct{}, AtOnce)}
	written := make(chan error)
	go func() { written <- t.write(c) }()
	err := t.take(r)
	close(t.answers)
	failed := <-written
	switch {
	case failed != nil: // the command does not know all outcomes, and must not count them as not done
		c.Close()
		return
	case s.ctx.Err() != nil:
		err = errStops()
	case err != io.EOF:
		err = relay.Errorf(relay.InvalidRequest, "%s", err)
	default: // the command has ended it
		c.Close()
		return
	}
	s.end(c, err)
}

// readWithin sets how long a command may take to send what is read next; 0 means any time. After
// Close nothing more is read.
func (s *Server) readWithin(c net.Conn, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil: // Close has set the deadline
	case d == 0:
		c.SetReadDeadline(time.Time{})
	default:
		c.SetReadDeadline(time.Now().Add(d))
	}
}

// A talk is the connection with one command.
type talk struct {
	*Server
	answers chan answer
	places  chan struct{} // of the answers, which are reserved before
	under   sync.WaitGroup
}

// write writes the answers until there are no more. While the server stops, the command has endsIn to take
// each of them. Since outcomes may still come late, the deadline begins with each answer. Error: an answer
// could not be written, because the command has gone, or reads nothing.
func (t *talk) write(c net.Conn) error {
	lines := json.NewEncoder(c)
	failed := lines.Encode(answer{})
	for a := range t.answers {
		if t.ctx.Err() != nil {
			c.SetWriteDeadline(time.Now().Add(endsIn))
		}
		if failed == nil {
			failed = lines.Encode(a)
		}
		<-t.places
	}
	return failed
}

// take takes the requests of a connection until it ends, and waits for their outcomes. Error: why
// it ended.
func (t *talk) take(r *bufio.Reader) error {
	defer t.under.Wait()
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	for n := uint64(1); ; n++ {
		request, err := readRequest(r)
		if err != nil {
			return err
		}
		t.places <- struct{}{}
		t.under.Add(1)
		t.handle(ctx, n, request)
	}
}

func (t *talk) handle(ctx context.Context, n uint64, request []byte) {
	done := func(outcome json.RawMessage, err error) {
		a := answer{N: n, Outcome: outcome}
		a.fail(err)
		t.answers <- a // there is a place for it
		t.under.Done()
	}
	switch {
	case len(request) > 0 && request[0] == aWrite:
		t.handler.Apply(t.ctx, request[1:], func(err error) { done(nil, err) })
	case len(request) > 0 && request[0] == aQuestion:
		go func() {
			done(t.handler.Answer(ctx, request[1:], func(so json.RawMessage) {
				select {
				case t.places <- struct{}{}:
					t.answers <- answer{N: n, Outcome: so, More: true}
				default: // the command reads slowly, and has older lines to read
				}
			}))
		}()
	default:
		done(nil, relay.Errorf(relay.InvalidRequest, "this is neither a write nor a question"))
	}
}

// The kinds of requests.
const (
	aWrite    = 'w'
	aQuestion = 'q'
)

// MaxBytes is how many bytes a request may have.
const MaxBytes = 8 << 20

func readRequest(r *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if n > MaxBytes {
		return nil, errors.New("a request is too long")
	}
	request, err := io.ReadAll(io.LimitReader(r, int64(n))) // memory grows with what arrives, not with what is announced
	if err == nil && uint64(len(request)) < n {
		err = io.ErrUnexpectedEOF
	}
	return request, err
}

// Close takes no more requests, removes the socket, and waits until all that were taken have
// their outcomes. It may be called again. Close of nil does nothing.
func (s *Server) Close() {
	if s == nil || s.ctx.Err() != nil {
		return
	}
	s.cancel()
	s.listener.Close()
	remove(s.socket)
	s.mu.Lock()
	for c := range s.conns {
		c.SetReadDeadline(time.Now())
		c.SetWriteDeadline(time.Now().Add(endsIn))
	}
	s.mu.Unlock()
	s.wg.Wait()
}
