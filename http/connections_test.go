package http_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
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
	for _, f := range options {
		f(other.server)
	}
	transport := &nethttp.Transport{MaxIdleConnsPerHost: 64}
	if encrypted {
		some := httptest.NewTLSServer(nil)
		cert := some.TLS.Certificates[0]
		some.Close()
		other.url = strings.Replace(other.url, "http", "https", 1)
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
	}
	other.client = &nethttp.Client{Transport: transport, Timeout: 20 * time.Second}
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
	conn, err := net.Dial("tcp", r.address())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
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

// answers tells whether a connection still gets an answer.
func answers(conn net.Conn) bool {
	io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	a, err := nethttp.ReadResponse(bufio.NewReader(conn), nil)
	return err == nil && a.StatusCode == 200
}

// ask is a request, to be sent by hand.
func (m mecha) ask(path string, more ...string) string {
	c := m.prepare("GET", path, "", unsigned)
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nX-Mecha-Key: %s\r\nX-Nonce: %s\r\nX-Request-Timestamp: %s\r\n%s\r\n", path, c.key, c.nonce, c.timestamp, strings.Join(more, ""))
}

// fill sends n messages of about 1 MiB to itself.
func (m mecha) fill(n int) {
	m.r.t.Helper()
	payload := `,"payload":{"p":"` + strings.Repeat("x", 1000<<10) + `"}}`
	for range n {
		m.post(messages, strings.Replace(letter(m), `,"payload":{}}`, payload, 1)).want(201)
	}
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

// Whoever has shown a key stays, whether it is at work, listens or is between two requests.
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
		<-fallen // the client has its answer before the relay goes on
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
	for end := time.Now().Add(20 * time.Second); !answers(g.stranger("")); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a place that was given back cannot be had")
		}
	}
}

// Many connections at once that take their time: each is ended, whoever is in
// a hurry is served meanwhile, and nothing is left of them.
func TestSlowAttacks(t *testing.T) {
	n := 250
	if testing.Short() {
		n = 60
	}
	short := func(s *settings) {
		s.timeouts.Header, s.timeouts.Body, s.timeouts.Idle = 800*time.Millisecond, time.Second, 800*time.Millisecond
		s.api.RateLimit, s.api.MaxBodyMemory = 0, 1<<30
	}
	slowWrites := func(s *nethttp.Server) { s.WriteTimeout = min(s.WriteTimeout, 2*time.Second) } // of more than a minute; 0 is none
	for name, row := range map[string]struct {
		encrypted bool
		begin     func(m mecha) string
		drip      string // sent over and over
	}{
		"nothing is sent":         {false, func(mecha) string { return "" }, ""},
		"headers drip":            {false, func(mecha) string { return "GET /livez HTTP/1.1\r\nHost: x\r\n" }, "X: y\r\n"},
		"a request, then silence": {false, func(mecha) string { return "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" }, ""},
		"a stranger's body drips": {false, func(mecha) string {
			return "POST " + messages + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
		}, "x"},
		"a body drips":         {false, func(m mecha) string { return m.announce(100_000) }, "x"},
		"a chunked body drips": {false, func(m mecha) string { return m.announce(-1) }, "1\r\nx\r\n"},
		"answers are not read": {false, func(m mecha) string {
			return m.ask(historyPath(m)+"?include=payload") + m.ask(historyPath(m)+"?include=payload") + m.ask(historyPath(m)+"?include=payload")
		}, "x"},
		"no TLS handshake":           {true, func(mecha) string { return "" }, ""},
		"half a TLS handshake":       {true, func(mecha) string { return "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" }, ""},
		"a TLS handshake that drips": {true, func(mecha) string { return "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" }, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			r, n := mustServe(t, short), n
			g := r.guarded(4*n, row.encrypted, slowWrites)
			alice, mallory := r.mustIssue("alice^demo").at(g), r.mustIssue("mallory^demo").at(g)
			alice.mustSend(alice)
			g.client.CloseIdleConnections()
			before := runtime.NumGoroutine()
			var attack sync.WaitGroup
			if name == "answers are not read" {
				n = 20 // of 4 MiB each
				mallory.fill(6)
			}
			for range n {
				conn := g.stranger("")
				attack.Go(func() {
					defer conn.Close()
					_, err := io.WriteString(conn, row.begin(mallory))
					for err == nil && row.drip != "" {
						time.Sleep(20 * time.Millisecond) // the attack itself
						_, err = io.WriteString(conn, row.drip)
					}
					if ended := (net.Error)(nil); errors.As(err, &ended) && ended.Timeout() {
						t.Error("the relay neither reads nor ends the connection")
					}
					wantEnded(t, conn)
				})
			}
			over := make(chan struct{})
			go func() { attack.Wait(); close(over) }()
			for served := 0; ; served++ {
				// With the header, its connection may fall idle before: the library sends it again.
				alice.sendOnce(fmt.Sprint(served), letter(alice)).want(201)
				alice.get(whoami).want(200)
				select {
				case <-over:
				default:
					continue
				}
				if served == 0 {
					t.Error("nobody was served meanwhile")
				}
				break
			}
			g.client.CloseIdleConnections()
			for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before+8; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
				}
			}
		})
	}
}

// watched is a listener whose connections tell what is done with them.
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
// be one more write, which waits for seconds, and the bell with it.
func TestACutOverTLSWaitsForNobody(t *testing.T) {
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

// announce is the beginning of a send, with n bytes to come; chunked if n is negative.
func (m mecha) announce(n int) string {
	c := m.prepare("POST", messages, "", unsigned)
	length := fmt.Sprintf("Content-Length: %d", n)
	if n < 0 {
		length = "Transfer-Encoding: chunked"
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Mecha-Key: %s\r\nX-Nonce: %s\r\nX-Request-Timestamp: %s\r\n%s\r\n\r\n", messages, c.key, c.nonce, c.timestamp, length)
}

// Who is refused is told so soon, though the body that it announced, which may
// take 30 s, never comes.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	r := mustServe(t)
	for path, status := range map[string]string{messages: "401", "/nothing": "404", "/livez": "405"} {
		conn := r.mustConnect(t, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") // its deadline is 10 s
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+status) {
			t.Errorf("%s: %v, %q", path, err, answer)
		}
	}
}

// Bodies under way are bounded in memory, and one key's do not keep out another's.
func TestBodiesUnderWayAreBounded(t *testing.T) {
	r := mustServe(t, func(s *settings) { s.api.MaxBodyMemory, s.api.MaxBody = 1<<20, 200<<10 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	large := func(m mecha) string { return letter(m) + strings.Repeat(" ", 100<<10) }
	slow := r.mustConnect(t, strings.Replace(alice.announce(100<<10), "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
	if _, err := slow.Read(make([]byte, 1)); err != nil { // the 100: the body is being waited for
		t.Fatal(err)
	}
	for range 3 {
		alice.post(messages, large(alice)).wantProblem(429, relay.RateLimited)
		alice.post(messages, large(alice), chunked).wantProblem(429, relay.RateLimited)
	}
	alice.mustSend(alice)
	bob.post(messages, large(bob)).want(201)
	bob.post(messages, large(bob), chunked).want(201)
	slow.Close()
	alice.eventually(large(alice))
	// Whatever becomes of a request, it gives its memory back.
	for range 20 {
		alice.do("GET", socketPath(alice), large(alice), handshake).wantProblem(400, relay.InvalidRequest)
		alice.post(messages, large(alice), signedBy("mk_wrong")).wantProblem(401, relay.InvalidSignature)
		alice.post(messages, "x"+large(alice)).wantProblem(400, relay.InvalidJSON)
		alice.post(messages, large(alice), idempotent(strings.Repeat("k", 129))).wantProblem(400, relay.InvalidIdempotencyKey)
	}
	alice.post(messages, large(alice)).want(201)
}

// eventually sends body until it is taken.
func (m mecha) eventually(body string) {
	m.r.t.Helper()
	for end := time.Now().Add(20 * time.Second); m.post(messages, body).status != 201; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.r.t.Fatal("what was given back cannot be had")
		}
	}
}

// Large answers that nobody reads count as well. What is refused has changed nothing.
func TestAnswersUnderWayAreBounded(t *testing.T) {
	r := mustServe(t, func(s *settings) { s.api.MaxBodyMemory = 64 << 20 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	alice.fill(6)
	bob.fill(6)
	page := historyPath(alice) + "?include=payload"
	for range 8 { // none of them reads its 4 MiB
		conn := r.mustConnect(t, "")
		conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		io.WriteString(conn, alice.ask(page))
	}
	for end := time.Now().Add(20 * time.Second); ; {
		if a := alice.get(page); a.status == 429 {
			a.wantProblem(429, relay.RateLimited)
			break
		}
		if time.Now().After(end) {
			t.Fatal("there is no bound")
		}
	}
	alice.get(whoami).want(200)
	bob.get(historyPath(bob) + "?include=payload").want(200)
}

// Behind a proxy, failures count against the client that the proxy names; a
// client that names others itself changes nothing.
func TestFailuresBehindAProxy(t *testing.T) {
	for _, trusts := range []bool{true, false} {
		r := mustServe(t, func(s *settings) {
			s.api.FailureLimit, s.api.FailureBurst = 0.001, 3
			if trusts {
				s.api.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			}
		})
		alice := r.mustIssue("alice^demo")
		from := func(hops ...string) change { return all(with("X-Mecha-Key"), with("X-Forwarded-For", hops...)) }
		for i := range 6 {
			alice.get(whoami, from(fmt.Sprintf("203.0.113.%d, 198.51.100.1", i))) // another name each time
		}
		alice.get(whoami, from("198.51.100.1")).wantProblem(429, relay.TooManyFailures)
		alice.get(whoami, with("X-Forwarded-For", "198.51.100.1")).want(200) // it locks out nobody
		alice.get(whoami).want(200)
		if trusts {
			alice.get(whoami, from("203.0.113.1")).wantProblem(401, relay.MissingHeader)
			alice.get(whoami, from("2001:db8::1")).wantProblem(401, relay.MissingHeader)
			for i := range 6 { // one customer's network
				alice.get(whoami, from(fmt.Sprintf("2001:db8::%d", i)))
			}
			alice.get(whoami, from("2001:db8::ffff:1")).wantProblem(429, relay.TooManyFailures)
			alice.get(whoami, from("2001:db8:0:1::1")).wantProblem(401, relay.MissingHeader)
		} else {
			alice.get(whoami, from("203.0.113.1")).wantProblem(429, relay.TooManyFailures)
		}
	}
}
