package ws

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A socket is a TCP connection that Go's runtime does not manage. A net.Conn takes
// about 1 KB for what an idle connection does not need: its addresses, two timers,
// a place in the runtime's epoll set. A socket is read and written without waiting.
// A call that must wait after all, because the peer reads slowly or has sent only
// part of a frame, attaches a second descriptor that the runtime does manage, for
// as long as the call takes.
//
// One goroutine may read while another writes. The other methods are safe for
// concurrent use, but SetWriteDeadline, which is the writer's.
type socket struct {
	place   io.Closer // its place among the server's connections, given back by Close; or nil
	writeBy int64     // the write deadline in Unix nanoseconds; 0: none. Used by the writer alone

	mu      sync.Mutex
	fd      int32
	users   int32    // the calls that use the descriptor; after Close, the last one closes it
	closed  bool     // Close has been called
	readBy  int64    // the read deadline in Unix nanoseconds; 0: none
	waiting *os.File // the second descriptor of a read that waits; nil: none waits
}

// openSocket takes a TCP connection over from the runtime. If that is not
// possible, for instance with a TLS connection, it returns the connection itself.
func openSocket(conn net.Conn) netConn {
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	fd, failed := -1, error(nil)
	err = raw.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil || failed != nil {
		return conn
	}
	s := &socket{fd: int32(fd)}
	if counted, ok := conn.(interface {
		io.Closer
		Detach()
	}); ok {
		counted.Detach()
		s.place = counted
	} else {
		conn.Close()
	}
	return s
}

// use keeps the descriptor open until leave. It returns false if the socket is closed.
func (s *socket) use() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.users++
	return true
}

func (s *socket) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.closed && s.users == 0 {
		unix.Close(int(s.fd))
	}
}

// Close ends the connection, and the calls that wait. It does not block.
func (s *socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	if s.users == 0 {
		unix.Close(int(s.fd))
	} else {
		_ = unix.Shutdown(int(s.fd), unix.SHUT_RDWR) // this ends the calls that wait
	}
	if s.place != nil {
		s.place.Close()
	}
	return nil
}

// CloseWrite tells the peer that we send nothing more.
func (s *socket) CloseWrite() error {
	if !s.use() {
		return net.ErrClosed
	}
	defer s.leave()
	return os.NewSyscallError("shutdown", unix.Shutdown(int(s.fd), unix.SHUT_WR))
}

// readNow reads without waiting. It returns errNothing if there is nothing to read.
func (s *socket) readNow(b []byte) (n int, err error) {
	if !s.use() {
		return 0, net.ErrClosed
	}
	defer s.leave()
	for {
		switch n, err = unix.Read(int(s.fd), b); {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, errNothing
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Read waits until there is something to read, or until the deadline.
func (s *socket) Read(b []byte) (int, error) {
	if !s.use() {
		return 0, net.ErrClosed
	}
	defer s.leave()
	s.mu.Lock()
	by := s.readBy
	s.mu.Unlock()
	if by != 0 && time.Now().UnixNano() >= by {
		return 0, os.ErrDeadlineExceeded // even if the peer never stops sending
	}
	if n, err := s.readNow(b); err != errNothing {
		return n, err
	}
	f, err := s.attach(by)
	if err != nil {
		return 0, err
	}
	defer detach(f)
	if err := s.setWaiting(f); err != nil {
		return 0, err
	}
	defer s.setWaiting(nil)
	return f.Read(b)
}

// setWaiting notes the descriptor on which a read waits, or nil, so that
// SetReadDeadline can end the wait.
func (s *socket) setWaiting(f *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = f
	if f == nil || s.readBy == 0 {
		return nil
	}
	return f.SetReadDeadline(time.Unix(0, s.readBy))
}

// SetReadDeadline is like that of net.Conn: it holds for a read that waits, too.
func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readBy = nanoseconds(t)
	if s.waiting == nil {
		return nil
	}
	return s.waiting.SetReadDeadline(t)
}

// SetWriteDeadline holds for the writes that follow. Only the writer may call it.
func (s *socket) SetWriteDeadline(t time.Time) error {
	s.writeBy = nanoseconds(t)
	return nil
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Write writes all of b, or as much as it can until the deadline.
func (s *socket) Write(b []byte) (n int, err error) {
	if !s.use() {
		return 0, net.ErrClosed
	}
	defer s.leave()
	for n < len(b) {
		m, err := unix.Write(int(s.fd), b[n:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			m, err = s.writeWaiting(b[n:])
			return n + m, err
		case err != nil:
			return n, os.NewSyscallError("write", err)
		default:
			n += m
		}
	}
	return n, nil
}

func (s *socket) writeWaiting(b []byte) (int, error) {
	f, err := s.attach(s.writeBy)
	if err != nil {
		return 0, err
	}
	defer detach(f)
	if s.writeBy != 0 {
		if err := f.SetWriteDeadline(time.Unix(0, s.writeBy)); err != nil {
			return 0, err
		}
	}
	return f.Write(b)
}

// attach opens a second descriptor of the connection, which the runtime manages.
// If there are too many of these, it waits until one is closed, or until the
// deadline.
func (s *socket) attach(by int64) (*os.File, error) {
	select {
	case attached <- struct{}{}:
	default:
		var late <-chan time.Time
		if by != 0 {
			t := time.NewTimer(time.Until(time.Unix(0, by)))
			defer t.Stop()
			late = t.C
		}
		select {
		case attached <- struct{}{}:
		case <-late:
			return nil, os.ErrDeadlineExceeded
		}
	}
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		<-attached
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "socket"), nil // it is non-blocking, by which os knows that the runtime can wait for it
}

// detach closes a second descriptor.
func detach(f *os.File) {
	f.Close()
	<-attached
}

// attached holds a token for each second descriptor. There may be so many that
// they take a sixteenth of the files that the process may open: half of what its
// connections leave free.
var attached = make(chan struct{}, mostAttached())

func mostAttached() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return leastAttached
	}
	return int(max(leastAttached, min(l.Cur/16, 1<<16)))
}

const leastAttached = 16
