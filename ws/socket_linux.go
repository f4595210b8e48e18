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

// A socket is a TCP connection that the runtime does not look after: a net.Conn
// takes about 1 KB for what an idle connection does not need (its addresses, two
// timers, a place in the runtime's epoll set). It is read and written without
// waiting. When one must wait all the same, because the peer reads slowly or has
// sent part of a frame, it gets a second descriptor, and with it the runtime's
// care, for as long as that takes.
//
// One goroutine may read while another writes; the other methods are safe for
// concurrent use.
type socket struct {
	place   io.Closer // what counts it among the connections, until it is closed; or nil
	writeBy int64     // deadline, Unix nanoseconds; 0: none. The writer's own

	mu      sync.Mutex
	fd      int32
	users   int32 // calls under way; the last one out closes the descriptor
	closed  bool
	readBy  int64    // deadline
	waiting *os.File // of the read that waits; or nil
}

// openSocket takes a TCP connection from the runtime. It gives the connection
// back as it is if that is not possible, for instance if it is one of TLS.
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

// use counts a call in, so that the descriptor stays what it is. Each needs a leave.
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

// Close ends the connection, also for calls that wait. It does not block.
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
		_ = unix.Shutdown(int(s.fd), unix.SHUT_RDWR) // it wakes them
	}
	if s.place != nil {
		s.place.Close()
	}
	return nil
}

// CloseWrite tells the peer that nothing more comes.
func (s *socket) CloseWrite() error {
	if !s.use() {
		return net.ErrClosed
	}
	defer s.leave()
	return os.NewSyscallError("shutdown", unix.Shutdown(int(s.fd), unix.SHUT_WR))
}

// readNow reads what there is, or returns errNothing.
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

func (s *socket) Read(b []byte) (int, error) {
	if !s.use() {
		return 0, net.ErrClosed
	}
	defer s.leave()
	s.mu.Lock()
	by := s.readBy
	s.mu.Unlock()
	if by != 0 && time.Now().UnixNano() >= by {
		return 0, os.ErrDeadlineExceeded // also if the peer never stops sending
	}
	if n, err := s.readNow(b); err != errNothing {
		return n, err
	}
	f, err := s.attach(by)
	if err != nil {
		return 0, err
	}
	defer detach(f)
	if err := s.wait(f); err != nil {
		return 0, err
	}
	defer s.wait(nil)
	return f.Read(b)
}

// wait notes who waits to read, so that a deadline finds them.
func (s *socket) wait(f *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = f
	if f == nil || s.readBy == 0 {
		return nil
	}
	return f.SetReadDeadline(time.Unix(0, s.readBy))
}

// SetReadDeadline is as net.Conn's; it also ends a read that waits.
func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readBy = nanoseconds(t)
	if s.waiting == nil {
		return nil
	}
	return s.waiting.SetReadDeadline(t)
}

// SetWriteDeadline is for the writer: it holds for the writes that follow.
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

// attach gives the connection a descriptor more, for which the runtime waits.
// If too many have one, it waits for its turn, not longer than a deadline.
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
	return os.NewFile(uintptr(fd), "socket"), nil // it is non-blocking, so the runtime knows to wait
}

func detach(f *os.File) {
	f.Close()
	<-attached
}

// attached has a token for each descriptor more. They may take a sixteenth of
// the files that may be open: connections leave an eighth to others.
var attached = make(chan struct{}, mostAttached())

func mostAttached() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return leastAttached
	}
	return int(max(leastAttached, min(l.Cur/16, 1<<16)))
}

const leastAttached = 16
