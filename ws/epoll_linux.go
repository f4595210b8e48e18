package ws

import (
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A poller waits for all parked connections at once, by epoll(7), so that they
// need no goroutine and no stack for it. It only wakes readers, which do all
// reading (read.go). Its connections are sockets (socket_linux.go). A nil poller
// takes no connection.
type poller struct {
	fd    int             // the epoll descriptor
	file  *os.File        // the same descriptor, so that Go's runtime waits for its events
	raw   syscall.RawConn // of file
	ended chan struct{}   // closed when run has ended

	mu    sync.Mutex
	conns []*Conn // by descriptor
}

// newPoller starts a poller, which close ends. It returns nil if the system
// refuses one: the relay works without.
func (h *Hub) newPoller() *poller {
	p, err := openPoller()
	if err != nil {
		h.config.Logger.Warn("epoll is not available, so each socket needs a goroutine", "error", err)
		return nil
	}
	go p.run()
	return p
}

func openPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else os would not have the runtime wait for it
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{})}
	err = p.file.SetReadDeadline(time.Time{}) // it fails if the runtime does not wait for the file
	if err == nil {
		p.raw, err = p.file.SyscallConn()
	}
	if err != nil {
		p.file.Close()
		return nil, err
	}
	return p, nil
}

// close ends the poller. Its connections must have ended before.
func (p *poller) close() {
	if p != nil {
		p.file.Close()
		<-p.ended
	}
}

func (p *poller) run() {
	defer close(p.ended)
	events := make([]unix.EpollEvent, 128)
	_ = p.raw.Read(func(uintptr) (done bool) { // it returns when close closes the file
		for {
			n, err := unix.EpollWait(p.fd, events, 0)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				return false
			}
			p.wakeReaders(events[:n])
			runtime.Gosched() // these readers run before more are started
		}
	})
}

func (p *poller) wakeReaders(events []unix.EpollEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		// The event may have been meant for an earlier connection with this
		// descriptor. Then the reader finds nothing, and parks again.
		if c := p.conns[e.Fd]; c != nil {
			c.wakeReader()
		}
	}
}

// take turns a new connection into one that the poller can wait for, if it can.
func (p *poller) take(conn net.Conn) netConn {
	if p == nil {
		return conn
	}
	return openSocket(conn)
}

// add takes a connection in. From then on, bytes that arrive wake its reader, but
// only once (EPOLLET), so the reader must read until there is nothing more. A TLS
// connection is not taken: TLS reads ahead, and epoll does not know of the bytes
// in its buffer.
func (p *poller) add(c *Conn) (taken bool) {
	s, ok := c.net.(*socket)
	if p == nil || !ok || !s.use() {
		return false
	}
	defer s.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.conns) <= int(s.fd) {
		p.conns = append(p.conns, nil)
	}
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: s.fd}
	if unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, int(s.fd), &e) != nil {
		return false
	}
	p.conns[s.fd] = c
	return true
}

// forget drops a connection that was closed; the closing took it out of the epoll set.
func (p *poller) forget(c *Conn) {
	if !c.in.polled {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if fd := c.net.(*socket).fd; p.conns[fd] == c { // else a new connection has the descriptor already
		p.conns[fd] = nil
	}
}
