package http_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
)

// exchange sends a request on a connection, and reads the answer.
func exchange(conn net.Conn, r *bufio.Reader, text string) (status int, err error) {
	if _, err := io.WriteString(conn, text); err != nil {
		return 0, err
	}
	a, err := nethttp.ReadResponse(r, nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, a.Body)
	return a.StatusCode, err
}

// whole is the text of a request with its body.
func (c *call) whole(more ...string) string {
	return c.text(append(more, fmt.Sprintf("Content-Length: %d\r\n", len(c.body)))...) + c.body
}

// narrow is a listener whose connections take up little that is not read.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return conn, err
}

// One Mecha opens more connections than there are, over and over, and keeps each
// for as long as it can, with two keys. Nobody else loses a connection by that.
func TestOneMechaCannotTakeTheConnectionsOfOthers(t *testing.T) {
	page := "GET /docs/protocol HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, row := range map[string]struct {
		begin func(m mecha) string
		more  string // sent over and over; answers are then not read
	}{
		"slow bodies":                           {func(m mecha) string { return m.announce(1000) + "{" }, ""},
		"slow chunked bodies":                   {func(m mecha) string { return m.announce(-1) + "1\r\n{\r\n" }, ""},
		"idle connections":                      {func(m mecha) string { return m.ask(whoami) }, ""},
		"the body of a request that takes none": {func(m mecha) string { return m.ask(whoami) + strings.Replace(page, "x", "x\r\nContent-Length: 9", 1) }, ""},
		"answers that are not read":             {func(m mecha) string { return m.ask(whoami) + strings.Repeat(page, 200) }, page},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 40
			r := mustServe(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			g := r.serveOn(r.api.Guard(narrow{l}, most), false)
			first, second := r.mustIssue("mallory^demo").at(g), r.mustIssue("mallory^demo").at(g)
			alice := r.mustIssue("alice^demo").at(g)
			var hers [2]net.Conn
			var answers [2]*bufio.Reader
			for i := range hers {
				hers[i], answers[i] = alice.knock("")
			}
			var attack sync.WaitGroup
			cut := make(chan struct{}, most/2)
			ended, end := context.WithCancel(context.Background())
			t.Cleanup(func() { end(); attack.Wait() })
			for i := range most * 3 / 2 {
				m := []mecha{first, second}[i%2]
				attack.Go(func() {
					for {
						conn, err := net.Dial("tcp", g.address())
						if err != nil {
							if ended.Err() == nil {
								t.Error(err)
							}
							return
						}
						conn.(*net.TCPConn).SetReadBuffer(4 << 10)
						stop := context.AfterFunc(ended, func() { conn.Close() })
						_, err = io.WriteString(conn, row.begin(m))
						for err == nil && row.more != "" {
							time.Sleep(100 * time.Millisecond) // the attack itself
							_, err = io.WriteString(conn, row.more)
						}
						if err == nil {
							io.Copy(io.Discard, conn) // until the relay ends it
						}
						if !stop() {
							return
						}
						conn.Close()
						select {
						case cut <- struct{}{}:
						default:
						}
						time.Sleep(200 * time.Millisecond) // the attack itself
					}
				})
			}
			for range cap(cut) { // from now on the server is full, or refuses more bodies
				<-cut
			}
			failed, requests := 0, scratch.Amount(t, 200, 500)
			for i := range requests {
				k := i % 2
				c, want := alice.prepare("GET", whoami, ""), 200
				if i%10 == 0 {
					c, want = alice.prepare("POST", messages, letter(alice)), 201
				}
				if status, err := exchange(hers[k], answers[k], c.whole()); err != nil || status != want {
					failed++
					hers[k], answers[k] = alice.knock("")
				}
			}
			if failed > 0 {
				t.Errorf("%d of %d requests failed", failed, requests)
			}
			for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // and a new client gets in
				if _, err := g.try(alice.prepare("GET", whoami, "")); err == nil {
					break
				} else if time.Now().After(end) {
					t.Fatal("no new client gets in: ", err)
				}
			}
		})
	}
}

// Bodies that arrive slowly are bounded for a Mecha, however small they are and
// whatever its keys; others are taken.
func TestBodiesThatArriveAreBounded(t *testing.T) {
	t.Parallel()
	const most = 160 // of which a Mecha may have 20 with a body that arrives
	r := mustServe(t)
	g := r.guarded(most, false)
	first, second := r.mustIssue("mallory^demo").at(g), r.mustIssue("mallory^demo").at(g)
	alice := r.mustIssue("alice^demo").at(g)
	var slow []net.Conn
	for i := range 20 {
		m := []mecha{first, second}[i%2]
		conn := g.stranger(strings.Replace(m.announce(10), "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the 100: the body is being waited for
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	var refused []net.Conn
	for _, m := range []mecha{first, second} {
		for range 3 {
			m.post(messages, letter(m)).wantProblem(429, relay.RateLimited)
			conn := g.stranger(m.announce(10))
			if status, err := exchange(conn, bufio.NewReader(conn), ""); err != nil || status != 429 {
				t.Errorf("%d, %v", status, err)
			}
			refused = append(refused, conn)
			m.get(whoami).want(200) // without a body
		}
	}
	for _, conn := range refused {
		wantEnded(t, conn)
	}
	alice.mustSend(first)
	slow[0].Close()
	first.eventually(letter(first))
}

// A worker with many requests under way, and a socket, keeps them all when the server
// is full: the relay closes no connection that it works for.
func TestABusyMechaKeepsWhatTheRelayWorksFor(t *testing.T) {
	t.Parallel()
	const polls = 24
	r := mustServe(t)
	g := r.guarded(polls+8, false)
	alice, bob := r.mustIssue("alice^demo").at(g), r.mustIssue("bob^demo").at(g)
	socket, frames := alice.knock(upgrade)
	polled := make(chan error, polls)
	for range polls {
		conn := g.stranger("")
		text := alice.ask(historyPath(alice) + "?wait=60")
		go func() {
			status, err := exchange(conn, bufio.NewReader(conn), text)
			if err == nil && status != 200 {
				err = fmt.Errorf("status %d", status)
			}
			polled <- err
		}()
		<-r.watching
	}
	for range 20 { // they take the place of one another
		bob.knock("")
	}
	alice.at(r).mustSend(alice)
	for range polls {
		if err := <-polled; err != nil {
			t.Error(err)
		}
	}
	if head, err := frames.Peek(1); err != nil || head[0] != 0x81 {
		t.Errorf("the socket: %x, %v", head, err)
	}
	socket.Close()
}
