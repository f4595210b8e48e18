package http_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"relay/db/scratch/wire"
)

// guarded serves the same relay on another listener, of at most so many
// connections, and ends it with the test. TLS has the certificate of net/http's
// own test server.
func (r *testRelay) guarded(most int, encrypted bool, options ...func(*nethttp.Server)) *testRelay {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	return r.serveOn(r.api.Guard(l, most), encrypted, options...)
}

func (r *testRelay) serveOn(l net.Listener, encrypted bool, options ...func(*nethttp.Server)) *testRelay {
	other := *r
	other.url = "http://" + l.Addr().String()
	other.server = r.api.Listening(r.settings.timeouts)
	if r.record != nil {
		other.server.Handler = r.record.Handler(r.api)
	}
	for _, f := range options {
		f(other.server)
	}
	transport := &nethttp.Transport{MaxIdleConnsPerHost: 64, DialContext: wire.Dial}
	if encrypted {
		some := httptest.NewTLSServer(nil)
		cert := some.TLS.Certificates[0]
		some.Close()
		other.url = strings.Replace(other.url, "http", "https", 1)
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
	}
	other.client = &nethttp.Client{Transport: transport, Timeout: patience}
	served := make(chan error, 1)
	go func() { served <- other.server.Serve(l) }()
	r.t.Cleanup(func() {
		transport.CloseIdleConnections()
		other.server.Close()
		<-served
	})
	return &other
}

func (m mecha) at(r *testRelay) mecha { m.r = r; return m }

// address is where r listens.
func (r *testRelay) address() string { return r.url[strings.Index(r.url, "//")+2:] }

// stranger opens a connection and sends text, which may be nothing.
func (r *testRelay) stranger(text string) net.Conn {
	r.t.Helper()
	conn, err := wire.Dial(context.Background(), "tcp", r.address())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, text) // it may be closed already
	return conn
}

// wantEnded expects the relay to have ended a connection, or to do so now.
func wantEnded(t testing.TB, conn net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	if timeout := (net.Error)(nil); errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the relay keeps the connection")
	}
}

// answers reports whether a connection still gets an answer.
func answers(conn net.Conn) bool {
	io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	a, err := nethttp.ReadResponse(bufio.NewReader(conn), nil)
	return err == nil && a.StatusCode == 200
}

// text is the head of an unsigned request, to be sent by hand; more is header
// lines, and may begin the body.
func (c *call) text(more ...string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nX-Mecha-Key: %s\r\nX-Nonce: %s\r\nX-Request-Timestamp: %s\r\n%s\r\n",
		c.method, c.path, c.key, c.nonce, c.timestamp, strings.Join(more, ""))
}

// ask is a GET, to be sent by hand.
func (m mecha) ask(path string, more ...string) string {
	return m.prepare("GET", path, "").text(more...)
}

// knock opens a connection of alice's own, and shows her key.
func (m mecha) knock(more string) (net.Conn, *bufio.Reader) {
	m.r.t.Helper()
	path := whoami
	if more != "" {
		path = socketPath(m)
	}
	conn := m.r.stranger(m.ask(path, more))
	rest := bufio.NewReader(conn)
	a, err := nethttp.ReadResponse(rest, nil)
	if err != nil {
		m.r.t.Fatal(err)
	}
	if more == "" {
		io.Copy(io.Discard, a.Body)
	} else if a.StatusCode != 101 {
		m.r.t.Fatal(a.Status)
	}
	return conn, rest
}

const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

func TestStrangersMakeRoomForOthers(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	g := r.guarded(8, false)
	alice := r.mustIssue("alice^demo").at(g)
	var strangers []net.Conn
	for i := range 8 {
		strangers = append(strangers, g.stranger([]string{"", "GET /livez HT"}[i%2]))
	}
	for range 3 { // the connection is kept
		alice.get(whoami).want(200)
	}
	wantEnded(t, strangers[0])
	if !answers(strangers[6]) {
		t.Error("one that came late has been closed, and there was an older one")
	}
	// To have asked, and to have been refused, does not make a friend.
	for range 20 {
		g.stranger("GET " + whoami + " HTTP/1.1\r\nHost: x\r\nX-Mecha-Key: " + typo(alice.Text) + "\r\n\r\n")
	}
	alice.get(whoami).want(200)
	for _, c := range strangers[1:] {
		wantEnded(t, c)
	}
}

// A client that has shown a key stays, whether it is at work, listens or is between two requests.
func TestAFloodOfStrangersTouchesNobodyElse(t *testing.T) {
	r := mustServe(t)
	g := r.guarded(16, false)
	alice := r.mustIssue("alice^demo").at(g)
	socket, frames := alice.knock(upgrade)
	idle, _ := alice.knock("")
	polled := make(chan reply, 1)
	poll := alice.prepare("GET", historyPath(alice)+"?wait=60", "")
	go func() {
		a, err := g.try(poll)
		if err != nil {
			t.Error(err)
		}
		polled <- a
	}()
	<-r.watching
	var last net.Conn
	for range 200 {
		last = g.stranger("")
	}
	if !answers(last) { // all before it have been accepted
		t.Error("the last of the flood was not accepted")
	}
	if !answers(idle) {
		t.Error("an idle connection that had shown a key was closed, though there were strangers")
	}
	alice.at(r).mustSend(alice)
	if head, err := frames.Peek(1); err != nil || head[0] != 0x81 {
		t.Errorf("the socket: %x, %v", head, err)
	}
	socket.Close()
	if a := <-polled; a.status != 200 {
		t.Errorf("the long-poll got %d", a.status)
	}
}

func TestIdleConnectionsMakeRoomWhenThereAreNoStrangers(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	fallen := make(chan struct{}, 8)
	g := r.guarded(4, false, func(s *nethttp.Server) {
		note := s.ConnState
		s.ConnState = func(c net.Conn, state nethttp.ConnState) {
			note(c, state)
			if state == nethttp.StateIdle {
				fallen <- struct{}{}
			}
		}
	})
	alice, bob := r.mustIssue("alice^demo").at(g), r.mustIssue("bob^demo").at(g)
	var idle []net.Conn
	for range 4 {
		conn, _ := alice.knock("")
		<-fallen // the client has its answer before the relay continues
		idle = append(idle, conn)
	}
	bob.get(whoami).want(200)
	wantEnded(t, idle[0]) // idle for longest
	if !answers(idle[1]) {
		t.Error("more were closed than needed")
	}
}

// When all are at work, another one is turned away at once: nobody waits for acceptance.
func TestNoRoomAtAll(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	g := r.guarded(3, false)
	alice := r.mustIssue("alice^demo").at(g)
	var sockets []net.Conn
	for range 3 {
		conn, _ := alice.knock(upgrade)
		sockets = append(sockets, conn)
	}
	for range 3 {
		wantEnded(t, g.stranger("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"))
	}
	sockets[1].Close()
	for end := time.Now().Add(patience); !answers(g.stranger("")); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a place that was given back cannot be had")
		}
	}
}
