package ws

import (
	"errors"
	"io"
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
//
// The connections stay net.Conns. Their descriptors are in the runtime's own
// epoll set as well, by which they are written to, and read when somebody waits.
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

// add takes a connection in, unless it is one of TLS, which may have read more
// from the network than it has been asked for. From then on whatever arrives rings,
// once (EPOLLET): so the reader must read until there is nothing.
func (p *poller) add(c *Conn) (taken bool) {
	tcp, ok := c.net.(syscall.Conn)
	if p == nil || !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.fd = int32(fd)
		e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: c.fd}
		if taken = unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, int(fd), &e) == nil; taken {
			for len(p.conns) <= int(fd) {
				p.conns = append(p.conns, nil)
			}
			p.conns[fd] = c
		}
	})
	return taken && err == nil
}

// forget lets go of a connection that has been closed, which took it out of the set.
func (p *poller) forget(c *Conn) {
	if !c.polled {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c.fd] == c { // else another has its descriptor by now
		p.conns[c.fd] = nil
	}
}

// readNow reads what a connection of a poller has at hand, or returns errNothing.
func readNow(conn net.Conn, b []byte) (n int, err error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			if n, failed = unix.Read(int(fd), b); failed != unix.EINTR {
				return true
			}
		}
	})
	switch err = errors.Join(err, failed); {
	case failed == unix.EAGAIN:
		return 0, errNothing
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
