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

// A poller waits for all parked connections at once, by epoll(7), so that none
// needs a goroutine and its stack for that. It only rings: what is read, and
// when, is the reader's affair (read.go). A nil poller takes no connection.
// Its connections are sockets (socket_linux.go).
type poller struct {
	fd    int      // the epoll descriptor
	file  *os.File // the same, on which in turn the runtime waits
	raw   syscall.RawConn
	ended chan struct{}

	mu    sync.Mutex
	conns []*Conn // by descriptor
}

// newPoller starts a poller, which close ends. If the system has none to give,
// that is no failure: it returns nil.
func (h *Hub) newPoller() *poller {
	p, err := openPoller()
	if err != nil {
		h.Logger.Warn("no epoll: each socket takes a goroutine", "error", err)
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
	if err := unix.SetNonblock(fd, true); err != nil { // by which os knows that it may be waited for
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{})}
	err = p.file.SetReadDeadline(time.Time{}) // fails if the runtime does not wait for it
	if err == nil {
		p.raw, err = p.file.SyscallConn()
	}
	if err != nil {
		p.file.Close()
		return nil, err
	}
	return p, nil
}

// close ends the poller. Connections must have ended before.
func (p *poller) close() {
	if p != nil {
		p.file.Close()
		<-p.ended
	}
}

func (p *poller) run() {
	defer close(p.ended)
	events := make([]unix.EpollEvent, 128)
	_ = p.raw.Read(func(uintptr) (done bool) { // until close
		for {
			n, err := unix.EpollWait(p.fd, events, 0)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				return false
			}
			p.ring(events[:n])
			runtime.Gosched() // before still more readers are started
		}
	})
}

func (p *poller) ring(events []unix.EpollEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		// An event may be of a connection that has had this descriptor before.
		// Then the reader finds nothing, and parks again.
		if c := p.conns[e.Fd]; c != nil {
			c.ring()
		}
	}
}

// take makes of a new connection what the poller can wait for.
func (p *poller) take(conn net.Conn) netConn {
	if p == nil {
		return conn
	}
	return openSocket(conn)
}

// add takes a connection in, unless it is one of TLS, which may have read more
// from the network than it has been asked for. From then on whatever arrives rings,
// once (EPOLLET): so the reader must read until there is nothing.
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

// forget lets go of a connection that has been closed, which took it out of the set.
func (p *poller) forget(c *Conn) {
	if !c.polled {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if fd := c.net.(*socket).fd; p.conns[fd] == c { // else another has its descriptor by now
		p.conns[fd] = nil
	}
}
