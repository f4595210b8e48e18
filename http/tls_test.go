package http_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	nethttp "net/http"
	"testing"
	"time"
)

// watched is a listener whose connections say what is done with them.
type watched struct {
	net.Listener
	events chan string
}

type watchedConn struct {
	net.Conn
	events chan string
}

func (l watched) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return watchedConn{conn, l.events}, err
}

func (c watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.events <- "write that fails"
	} else {
		c.events <- "write"
	}
	return n, err
}

func (c watchedConn) Close() error {
	c.events <- "close"
	return c.Conn.Close()
}

// A socket over TLS that reads nothing is cut off without a goodbye. That would
// be one more write, which waits for seconds, and the hub with it.
func TestACutOverTLSWaitsForNobody(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.hub.WriteTimeout = 200 * time.Millisecond })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 1<<16)
	g := r.serveOn(watched{l, events}, true)
	alice := r.mustIssue("alice^demo")
	raw, err := net.Dial("tcp", g.address())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	raw.(*net.TCPConn).SetReadBuffer(4 << 10)
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	io.WriteString(conn, alice.ask(socketPath(alice), upgrade))
	if a, err := nethttp.ReadResponse(bufio.NewReader(conn), nil); err != nil || a.StatusCode != 101 {
		t.Fatal(a, err)
	}
	for {
		select {
		case e := <-events:
			if e != "write that fails" {
				continue
			}
			if e := <-events; e != "close" {
				t.Errorf("after the write that failed comes a %s", e)
			}
			alice.mustSend(alice)
			return
		default:
			alice.fill(1)
		}
	}
}
