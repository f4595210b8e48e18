package http_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"testing"

	"relay/db/relay"
)

// chunks is the text of a request with its body in chunks; more is header lines.
func (c *call) chunks(more ...string) string {
	return c.text(append(more, "Transfer-Encoding: chunked\r\n")...) + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(c.body), c.body)
}

// A request with both Content-Length and Transfer-Encoding is answered, and ends its
// connection: further requests on it are not served. Other requests leave it open.
func TestARequestWithTwoLengthsEndsItsConnection(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	g := r.guarded(1000, false)
	encrypted := r.guarded(1000, true)
	alice := r.mustIssue("alice^demo").at(g)
	send := func() *call { return alice.prepare("POST", messages, letter(alice)) }
	ask := func() string { return alice.ask(whoami) }
	length := "Content-Length: 5\r\n"
	handshake := func() *call { return alice.prepare("GET", socketPath(alice), "{}") }
	for name, row := range map[string]struct {
		text     func() string // of one or several requests; another one follows
		statuses []int         // of the answers; the last one ends the connection
	}{
		"both":                      {func() string { return send().chunks(length) }, []int{201}},
		"both, the other way round": {func() string { return strings.Replace(send().chunks(), "chunked\r\n", "chunked\r\n"+length, 1) }, []int{201}},
		"in other letters":          {func() string { return send().chunks("cOnTeNt-LeNgTh:5\r\n") }, []int{201}},
		"line feeds alone": {func() string {
			head, body, _ := strings.Cut(send().chunks(length), "\r\n\r\n")
			return strings.ReplaceAll(head, "\r\n", "\n") + "\n\n" + body
		}, []int{201}},
		"behind others":             {func() string { return ask() + ask() + send().chunks(length) }, []int{200, 200, 201}},
		"in what was read ahead":    {func() string { return send().chunks() + send().chunks(length) }, []int{201}},
		"far into the headers":      {func() string { return send().chunks("X-Other: "+strings.Repeat("x", 9000)+"\r\n", length) }, []int{201}},
		"refused":                   {func() string { return strings.Replace(send().chunks(length), "X-Mecha-Key: mk_", "X-Mecha-Key: m_", 1) }, []int{401}},
		"of no path":                {func() string { return strings.Replace(send().chunks(length), messages, "/nothing", 1) }, []int{404}},
		"on the way to a WebSocket": {func() string { return handshake().chunks(length) }, []int{426}},
		"HTTP/1.0": {func() string {
			return strings.Replace(send().chunks(length, "Connection: keep-alive\r\n"), "HTTP/1.1", "HTTP/1.0", 1)
		}, []int{400}},
		"HTTP/1.0 without a length": {func() string {
			return strings.Replace(alice.prepare("GET", whoami, "").text("Connection: keep-alive\r\n"), "HTTP/1.1", "HTTP/1.0", 1)
		}, []int{200}},
	} {
		t.Run(name, func(t *testing.T) {
			wantLast(t, g.stranger(""), row.text()+ask(), row.statuses)
		})
	}
	for name, text := range map[string]string{
		"chunks":                         send().chunks() + send().chunks() + ask() + send().chunks() + ask(),
		"lengths":                        send().whole() + send().whole() + ask() + ask(),
		"a word that is nearly a length": send().chunks("X-Content-Length: 5\r\n", "Content-Lengt: 5\r\n", "Content: length\r\n") + ask(),
	} {
		t.Run(name, func(t *testing.T) {
			conn := g.stranger(text)
			rest := bufio.NewReader(conn)
			for range strings.Count(text, "HTTP/1.1") {
				a, err := nethttp.ReadResponse(rest, nil)
				if err != nil || a.StatusCode > 201 || a.Close {
					t.Fatal(a, err)
				}
				io.Copy(io.Discard, a.Body)
			}
		})
	}
	conn := g.stranger("")
	conn.(*net.TCPConn).SetNoDelay(true)
	for _, b := range []byte(send().chunks(length)) { // in as many packets
		conn.Write([]byte{b})
	}
	wantLast(t, conn, ask(), []int{201})
	secret, err := tls.Dial("tcp", encrypted.address(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	wantLast(t, secret, send().chunks()+ask(), []int{201}) // its bytes cannot be looked at
}

// wantLast sends text, and expects these answers, and then the end.
func wantLast(t *testing.T, conn net.Conn, text string, statuses []int) {
	t.Helper()
	defer conn.Close()
	go io.WriteString(conn, text)
	rest := bufio.NewReader(conn)
	for i, status := range statuses {
		a, err := nethttp.ReadResponse(rest, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != status || a.Close != (i == len(statuses)-1) {
			t.Errorf("answer %d: %d, close %v, %v; want %d", i, a.StatusCode, a.Close, err, status)
		}
	}
	if more, _ := io.ReadAll(rest); len(more) > 0 {
		t.Errorf("what follows was served: %q", more)
	}
}

// A slash in a path has one spelling.
func TestAnEscapedSlashIsNoSlash(t *testing.T) {
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	for _, path := range []string{"/api/v1%2Fwhoami", "/api/v1%2fwhoami", "/api%2Fv1%2Fwhoami", messages + "%2Fx",
		strings.Replace(historyPath(alice), "/messages", "%2Fmessages", 1), "/docs%2Fprotocol", "/livez%2F"} {
		r.dial(t, alice, "GET", path, "").wantProblem(404, relay.NotFound)
	}
	r.dial(t, alice, "GET", strings.Replace(historyPath(alice), "^", "%5E", 1), "").want(200)
	r.dial(t, alice, "GET", strings.Replace(historyPath(alice), "^", "%5e", 1), "").want(200)
	r.dial(t, alice, "GET", historyPath(alice), "").want(200)
	r.dial(t, alice, "GET", "/api/v1/who%61mi", "").want(200)
}
