package ws

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A socket is a TCP connection that Go's runtime does not manage. A net.Conn takes
// about 1 KB for things that an idle connection does not need: its addresses, two
// timers, a place in the runtime's epoll set. A socket is read without waiting. A write that
// must wait, because the peer reads slowly, waits for the poller.
//
// One goroutine may read while another writes. Close, wakeWrite, CloseWrite and unsent
// are safe for concurrent use.
type socket struct {
	place   io.Closer // its place among the server's connections, given back by Close; or nil
	writeBy int64     // the write deadline in Unix nanoseconds; 0: none. Used by the writer alone

	mu     sync.Mutex
	fd     int32
	users  int32         // the calls that use the descriptor; after Close, the last one closes it
	closed bool          // Close has been called
	room   chan struct{} // has a token when a waiting write must continue; nil if no write waits
}

// duplicate returns a second descriptor of a TCP connection; of no other, for instance
// one with TLS.
func duplicate(conn net.Conn) (fd int, ok bool) {
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, false
	}
	failed := error(nil)
	err = raw.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, err == nil && failed == nil
}

// newSocket takes a connection over from the runtime. fd is a second descriptor of it.
func newSocket(fd int, conn net.Conn) *socket {
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

// Close ends the connection, and a write that waits. It does not block.
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
		_ = unix.Shutdown(int(s.fd), unix.SHUT_RDWR)
		s.wakeLocked()
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

// unsent reports whether the peer has not yet taken all that was written.
func (s *socket) unsent() bool {
	if !s.use() {
		return false
	}
	defer s.leave()
	return unsentOf(int(s.fd))
}

func unsentOf(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	return err == nil && n > 0
}

// unsent is the same for any connection: one with TLS, or one that Go's runtime manages.
func unsent(conn netConn) (more bool) {
	if s, ok := conn.(*socket); ok {
		return s.unsent()
	}
	below := any(conn)
	if t, ok := conn.(*tls.Conn); ok {
		below = t.NetConn()
	}
	if tcp, ok := below.(syscall.Conn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { more = unsentOf(int(fd)) }) // it fails if the connection is closed
		}
	}
	return more
}

// Read reads without waiting. It returns errNothing if there is nothing to read.
func (s *socket) Read(b []byte) (n int, err error) {
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

// SetWriteDeadline holds for the writes that follow. Only the writer may call it.
func (s *socket) SetWriteDeadline(t time.Time) error {
	s.writeBy = 0
	if !t.IsZero() {
		s.writeBy = t.UnixNano()
	}
	return nil
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

// writeWaiting is Write when the network takes no more for now.
func (s *socket) writeWaiting(b []byte) (n int, err error) {
	room, late := s.beginWait(), (<-chan time.Time)(nil)
	defer s.endWait()
	if s.writeBy != 0 {
		t := time.NewTimer(time.Until(time.Unix(0, s.writeBy)))
		defer t.Stop()
		late = t.C
	}
	for {
		// Write before each wait: only a write that fails has the poller told of room.
		switch m, err := unix.Write(int(s.fd), b[n:]); {
		case err == unix.EINTR:
			continue
		case err != nil && err != unix.EAGAIN:
			return n, os.NewSyscallError("write", err)
		case err == nil:
			if n += m; n == len(b) {
				return n, nil
			}
			continue
		}
		select {
		case <-room:
		case <-late:
			return n, os.ErrDeadlineExceeded
		}
	}
}

func (s *socket) beginWait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = make(chan struct{}, 1)
	return s.room
}

func (s *socket) endWait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = nil
}

// wakeWrite lets a waiting write continue. The poller calls it.
func (s *socket) wakeWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeLocked()
}

func (s *socket) wakeLocked() {
	select {
	case s.room <- struct{}{}: // never, while it is nil
	default:
	}
}
