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

// A poller waits for all its connections at once, by epoll(7), so that a parked one
// needs no goroutine and no stack for it. It only wakes: readers, which do all
// reading (read.go), and writes that wait for their peer. Its connections are
// sockets (socket_linux.go). A nil poller takes no connection.
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
			p.wake(events[:n])
			runtime.Gosched() // these goroutines run before more are started
		}
	})
}

func (p *poller) wake(events []unix.EpollEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		// The event may have been meant for an earlier connection with this
		// descriptor. Then the reader or the write finds nothing, and waits again.
		c := p.conns[e.Fd]
		if c == nil {
			continue
		}
		if e.Events&^unix.EPOLLOUT != 0 {
			c.wakeReader()
		}
		if e.Events&^unix.EPOLLIN != 0 {
			c.net.(*socket).wakeWrite()
		}
	}
}

// take makes conn the network connection of c, as a socket that the poller waits for, or returns false. From
// then on bytes that arrive wake the reader, and room for bytes wakes a write that waits. That happens only
// once (EPOLLET), so both must continue until nothing is left. A TLS connection is not taken: TLS reads ahead,
// and epoll does not know of the bytes in its buffer. c.mu is held, and c has no reader yet.
func (p *poller) take(c *Conn, conn net.Conn) (taken bool) {
	if p == nil {
		return false
	}
	fd, ok := duplicate(conn)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET, Fd: int32(fd)}
	if unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e) != nil {
		unix.Close(fd)
		return false
	}
	for len(p.conns) <= fd {
		p.conns = append(p.conns, nil)
	}
	c.net, c.in.polled = newSocket(fd, conn), true
	p.conns[fd] = c
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
