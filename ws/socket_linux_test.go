package ws

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// mustSocket gives a socket, and what its peer has.
func mustSocket(t *testing.T) (*socket, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s, ok := openSocket(conn).(*socket)
	if !ok {
		t.Fatal("a TCP connection was not taken")
	}
	t.Cleanup(func() { s.Close() })
	return s, peer.(*net.TCPConn)
}

// waits returns once a read of the socket waits.
func (s *socket) waits(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // nothing tells
		s.mu.Lock()
		waiting := s.waiting != nil
		s.mu.Unlock()
		if waiting {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the read does not wait")
		}
	}
}

func TestASocketReads(t *testing.T) {
	s, peer := mustSocket(t)
	b := make([]byte, 10)
	if _, err := s.readNow(b); err != errNothing {
		t.Errorf("nothing was sent: %v", err)
	}
	read := make(chan string)
	go func() {
		n, err := s.Read(b)
		read <- string(b[:n]) + errText(err)
	}()
	s.waits(t)
	peer.Write([]byte("later"))
	if got := <-read; got != "later" {
		t.Errorf("%q", got)
	}
	peer.CloseWrite()
	if n, err := s.Read(b); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if n, err := s.readNow(b); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A deadline ends a read that waits, and one that need not wait.
func TestASocketsReadDeadline(t *testing.T) {
	s, peer := mustSocket(t)
	ended := make(chan error)
	go func() {
		_, err := s.Read(make([]byte, 10))
		ended <- err
	}()
	s.waits(t)
	s.SetReadDeadline(time.Now())
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the read that waited ended with %v", err)
	}
	peer.Write([]byte("much"))
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("with something to read it ended with %v", err)
	}
	s.SetReadDeadline(time.Time{})
	if n, err := s.Read(make([]byte, 10)); n != 4 || err != nil {
		t.Errorf("without a deadline: %d, %v", n, err)
	}
	s.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // set before the read begins to wait
	if _, err := s.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read that waited until then ended with %v", err)
	}
}

// More than the network takes at once arrives whole, and in order.
func TestASocketWritesWhatASlowPeerReads(t *testing.T) {
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

// closings counts how often it is closed.
type closings struct {
	net.Conn
	n int
}

func (c *closings) Close() error { c.n++; return nil }

// Close ends what waits, gives the place back once, and the descriptor when the
// last call has left.
func TestASocketIsClosed(t *testing.T) {
	s, peer := mustSocket(t)
	place := &closings{}
	s.place = place
	ended := make(chan error, 2)
	go func() {
		_, err := s.Read(make([]byte, 10))
		ended <- err
	}()
	s.waits(t)
	go func() {
		_, err := s.Write(make([]byte, 64<<20))
		ended <- err
	}()
	io.ReadFull(peer, make([]byte, 1<<20)) // it is at work
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a call went on")
		}
	}
	if err := s.Close(); err != net.ErrClosed || place.n != 1 {
		t.Errorf("closed again: %v; the place was given back %d times", err, place.n)
	}
	for name, call := range map[string]func() error{
		"Read":       func() error { _, err := s.Read(make([]byte, 1)); return err },
		"readNow":    func() error { _, err := s.readNow(make([]byte, 1)); return err },
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

// When too many wait, the next one waits for its turn: to its deadline.
func TestTooManySocketsWait(t *testing.T) {
	all := attached
	attached = make(chan struct{}, 1)
	defer func() { attached = all }()
	first, itsPeer := mustSocket(t)
	second, otherPeer := mustSocket(t)
	read := func(s *socket) chan string {
		got := make(chan string)
		go func() {
			b := make([]byte, 10)
			n, err := s.Read(b)
			got <- string(b[:n]) + errText(err)
		}()
		return got
	}
	one := read(first)
	first.waits(t)
	second.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if got := <-read(second); got != os.ErrDeadlineExceeded.Error() {
		t.Errorf("beyond the bound: %q", got)
	}
	second.SetReadDeadline(time.Time{})
	two := read(second)
	otherPeer.Write([]byte("two"))
	itsPeer.Write([]byte("one"))
	if got := <-one; got != "one" {
		t.Errorf("%q", got)
	}
	if got := <-two; got != "two" {
		t.Errorf("%q", got)
	}
	if len(attached) > 0 {
		t.Error("a turn was not given back")
	}
}
