package ws

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// mustConnect returns the two ends of a connection.
func mustConnect(t *testing.T) (conn net.Conn, peer *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close() })
	if conn, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, dialed.(*net.TCPConn)
}

// mustSocket returns a socket that a poller waits for, and its peer.
func mustSocket(t *testing.T) (*socket, *net.TCPConn) {
	t.Helper()
	conn, peer := mustConnect(t)
	p, err := openPoller()
	if err != nil {
		t.Fatal(err)
	}
	go p.run()
	t.Cleanup(p.close)
	c := &Conn{}
	c.in.state.Store(reading) // so that the poller starts no reader
	if !p.take(c, conn) {
		t.Fatal("a TCP connection was not taken")
	}
	t.Cleanup(func() { c.net.Close() })
	return c.net.(*socket), peer
}

// comes reads what comes, and does what the reader of a connection leaves to the poller.
func (s *socket) comes(b []byte) (n int, err error) {
	for err = errNothing; err == errNothing; time.Sleep(time.Millisecond) { // the poller wakes readers alone
		n, err = s.Read(b)
	}
	return n, err
}

func TestASocketReads(t *testing.T) {
	s, peer := mustSocket(t)
	b := make([]byte, 10)
	if _, err := s.Read(b); err != errNothing {
		t.Errorf("nothing was sent: %v", err)
	}
	peer.Write([]byte("later"))
	if n, err := s.comes(b); string(b[:n]) != "later" || err != nil {
		t.Errorf("%q, %v", b[:n], err)
	}
	peer.CloseWrite()
	if n, err := s.comes(b); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
}

// More than the network takes at once arrives whole, and in order.
func TestASocketWritesWhatASlowPeerReads(t *testing.T) {
	t.Parallel()
	s, peer := mustSocket(t)
	sent := make([]byte, 16<<20)
	rand.Read(sent)
	wrote := make(chan error)
	go func() {
		n, err := s.Write(sent)
		if n != len(sent) {
			err = errors.Join(err, io.ErrShortWrite)
		}
		s.CloseWrite()
		wrote <- err
	}()
	got, err := io.ReadAll(peer)
	if !bytes.Equal(got, sent) || err != nil {
		t.Errorf("%d bytes of %d arrived, or others; %v", len(got), len(sent), err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func TestASocketsWriteDeadline(t *testing.T) {
	s, _ := mustSocket(t)
	s.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := s.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 64<<20 {
		t.Errorf("nobody read: %d, %v", n, err)
	}
}

// Writes that wait for their peers take no descriptors.
func TestWritesThatWaitTakeNoDescriptor(t *testing.T) {
	const n = 20
	var sockets []*socket
	var peers []*net.TCPConn
	for range n {
		s, peer := mustSocket(t)
		sockets, peers = append(sockets, s), append(peers, peer)
	}
	before := openFiles(t)
	ended := make(chan error, n)
	for _, s := range sockets {
		go func() {
			_, err := s.Write(make([]byte, 16<<20))
			ended <- err
		}()
		s.waits(t)
	}
	if now := openFiles(t); now > before {
		t.Errorf("%d files are open, %d were", now, before)
	}
	for _, peer := range peers {
		go io.Copy(io.Discard, peer)
	}
	for range n {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(files)
}

// waits returns once a write of the socket waits.
func (s *socket) waits(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // nothing tells
		s.mu.Lock()
		waiting := s.room != nil
		s.mu.Unlock()
		if waiting {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the write does not wait")
		}
	}
}

// closings counts how often it is closed.
type closings struct {
	net.Conn
	n int
}

func (c *closings) Close() error { c.n++; return nil }

// Close ends a write that waits, gives the place back once, and the descriptor when the
// last call has left.
func TestASocketIsClosed(t *testing.T) {
	s, peer := mustSocket(t)
	place := &closings{}
	s.place = place
	ended := make(chan error)
	go func() {
		_, err := s.Write(make([]byte, 64<<20))
		ended <- err
	}()
	s.waits(t)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the write went on")
	}
	if err := s.Close(); err != net.ErrClosed || place.n != 1 {
		t.Errorf("closed again: %v; the place was given back %d times", err, place.n)
	}
	for name, call := range map[string]func() error{
		"Read":       func() error { _, err := s.Read(make([]byte, 1)); return err },
		"Write":      func() error { _, err := s.Write([]byte("x")); return err },
		"CloseWrite": s.CloseWrite,
	} {
		if err := call(); err != net.ErrClosed {
			t.Errorf("%s of a closed socket: %v", name, err)
		}
	}
	if _, err := io.Copy(io.Discard, peer); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Logf("the peer saw %v", err) // a reset, since something was unread
	}
}

// Of each kind of connection the relay can report whether its peer has taken everything.
func TestWhatIsUnsentIsKnown(t *testing.T) {
	t.Parallel()
	for kind, connect := range map[string]func() (netConn, *net.TCPConn){
		"socket": func() (netConn, *net.TCPConn) { s, peer := mustSocket(t); return s, peer },
		"TCP":    func() (netConn, *net.TCPConn) { conn, peer := mustConnect(t); return conn, peer },
		"TLS": func() (netConn, *net.TCPConn) {
			conn, peer := mustConnect(t)
			other := httptest.NewTLSServer(nil) // for its certificate
			defer other.Close()
			go tls.Client(peer, &tls.Config{InsecureSkipVerify: true}).Handshake()
			c := tls.Server(conn, &tls.Config{Certificates: other.TLS.Certificates})
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			return c, peer
		},
	} {
		conn, peer := connect()
		becomes := func(want bool) {
			t.Helper()
			for end := time.Now().Add(time.Minute); unsent(conn) != want; time.Sleep(time.Millisecond) { // nothing tells
				if time.Now().After(end) {
					t.Fatalf("%s: unsent is never %v", kind, want)
				}
			}
		}
		written := make(chan error, 1)
		go func() {
			_, err := conn.Write(make([]byte, 16<<20)) // more than the network takes
			written <- err
		}()
		becomes(true)
		go io.Copy(io.Discard, peer)
		if err := <-written; err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		becomes(false)
		conn.Close()
		if unsent(conn) {
			t.Errorf("%s: something is unsent on a closed connection", kind)
		}
	}
}
