package http_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

func TestRateOfAKey(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RateLimit, s.api.RateBurst = 2, 3 })
	alice, spare := r.mustIssue("alice^demo"), r.mustIssue("alice^demo")
	for range 3 {
		alice.get(whoami).want(200)
	}
	alice.get(whoami).wantProblem(429, relay.RateLimited)
	alice.post(messages, letter(alice)).wantProblem(429, relay.RateLimited)
	alice.get(socketPath(alice), handshake).wantProblem(429, relay.RateLimited)
	spare.get(whoami).want(200) // each key has its own
	r.clock.advance(time.Second)
	alice.get(whoami, nonce("n")).want(200)
	alice.get(whoami).want(200)
	alice.get(whoami, nonce("n")).wantProblem(429, relay.RateLimited)
	r.wantMessages(0)
}

// Guessing is slowed down, but nobody can lock out anybody else.
func TestFailuresOfAnAddress(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.FailureLimit, s.api.FailureBurst = 1, 3 })
	alice := r.mustIssue("alice^demo")
	for _, c := range []change{with("X-Mecha-Key"), with("X-Mecha-Key", typo(alice.Text)), signedBy("mk_wrong")} {
		if a := alice.get(whoami, c); a.status != 401 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for _, c := range []change{with("X-Mecha-Key"), nonce("a b"), signedBy("mk_wrong"), stamped("2026-01-01T00:00:00Z")} {
		alice.get(whoami, c).wantProblem(429, relay.TooManyFailures)
		alice.get(whoami).want(200)
		alice.mustSend(alice)
	}
	alice.get("/api/v1/nothing").wantProblem(404, relay.NotFound)
	alice.get(historyPath(alice)+"?limit=0").wantProblem(400, relay.InvalidLimit) // other faults are none of its business
	r.clock.advance(time.Second)
	alice.get(whoami, with("X-Mecha-Key")).wantProblem(401, relay.MissingHeader)
	alice.get(whoami, with("X-Mecha-Key")).wantProblem(429, relay.TooManyFailures)
}

func TestAFullMailbox(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.db.MaxPending = 2 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	id := alice.mustSend(bob).MessageID
	first := alice.sendOnce("k", letter(bob)).want(201)
	alice.post(messages, letter(bob)).wantProblem(429, relay.MailboxFull)
	alice.sendOnce("k", letter(bob)).wantReplay(first) // nothing new
	alice.mustSend(alice)
	bob.mustAck(id, "processing")
	alice.post(messages, letter(bob)).wantProblem(429, relay.MailboxFull)
	bob.mustAck(id, "completed")
	alice.mustSend(bob)
	alice.post(messages, letter(bob)).wantProblem(429, relay.MailboxFull)
	r.wantMessages(4)
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBody = 4000 })
	alice := r.mustIssue("alice^demo")
	empty := letter(alice)
	for _, c := range []change{all(), chunked} {
		fits := empty + strings.Repeat(" ", 4000-len(empty))
		alice.post(messages, fits, c).want(201)
		alice.post(messages, fits+" ", c).wantProblem(413, relay.PayloadTooLarge)
		alice.post(messages, fits+strings.Repeat(" ", 1<<20), c).wantProblem(413, relay.PayloadTooLarge)
	}
	r.wantMessages(2)
	// It is refused when it is announced: nothing of these bodies is ever sent.
	for _, announced := range []string{"Content-Length: 1000000\r\n", "Content-Length: 4001\r\nExpect: 100-continue\r\n"} {
		r.dial(t, alice, "POST", messages, announced).wantProblem(413, relay.PayloadTooLarge)
	}
	for _, encoding := range [][]string{{"gzip"}, {"identity", "gzip"}, {"", "br"}, {"identity, gzip"}, {"x"}} {
		alice.post(messages, empty, with("Content-Encoding", encoding...)).wantProblem(415, relay.UnsupportedEncoding)
	}
}

// dial sends a request by hand, up to what follows its headers, and reads the answer.
func (r *testRelay) dial(t *testing.T, m mecha, method, path, more string) reply {
	t.Helper()
	conn := r.mustConnect(t, m.prepare(method, path, "").text(more))
	a, err := nethttp.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{t: t, of: method + " " + path, status: a.StatusCode, header: a.Header, body: body}
}

func (r *testRelay) mustConnect(t *testing.T, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readToTheEnd connects, sends text, and reads until the connection is closed. It does so again if the
// machine took half of the second that the headers have: the connection may have been closed before.
func (r *testRelay) readToTheEnd(t *testing.T, text string) ([]byte, error) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		began := time.Now()
		conn := r.mustConnect(t, text)
		quick := time.Since(began) < time.Second/2
		if rest, err := io.ReadAll(conn); quick || time.Now().After(end) {
			return rest, err
		}
	}
}

func TestSlowRequests(t *testing.T) {
	t.Parallel()
	t.Run("headers", func(t *testing.T) {
		t.Parallel()
		r := mustServe(t, func(s *settings) { s.timeouts.Header = time.Second })
		for _, beginning := range []string{"", "G", "GET /livez HTTP/1.1\r\nHost: x\r\n"} {
			t.Run(beginning, func(t *testing.T) {
				t.Parallel()
				rest, err := r.readToTheEnd(t, beginning)
				if err != nil || len(rest) > 0 && !strings.HasPrefix(string(rest), "HTTP/1.1 400 ") {
					t.Errorf("after %q: %q, %v", beginning, rest, err)
				}
			})
		}
	})
	for _, limit := range []int64{1 << 20, 0} { // 0: no limit
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			r := mustServe(t, func(s *settings) { s.timeouts.Body, s.api.MaxBody = time.Second, limit })
			alice := r.mustIssue("alice^demo")
			t.Run("all at once", func(t *testing.T) {
				bodies := []string{"Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"to\""}
				if limit == 0 { // nothing is set aside for what has only been announced
					bodies = append(bodies, "Content-Length: 9223372036854775807\r\n")
				}
				for _, more := range bodies {
					t.Run(more, func(t *testing.T) {
						t.Parallel()
						r.dial(t, alice, "POST", messages, more).wantProblem(408, relay.RequestTimeout)
					})
				}
			})
			alice.get(whoami).want(200)
			r.wantMessages(0)
		})
	}
}

// The limit of the headers is what its setting says, to the byte: it counts from the
// request line to the empty line.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	for _, most := range []int{16 << 10, 4097, 20_000} {
		r := mustServe(t, func(s *settings) { s.timeouts.MaxHeaders = most })
		alice := r.mustIssue("alice^demo")
		for over, status := range map[int]int{-1000: 200, 0: 200, 1: 431, 4096: 431, 100_000: 431} {
			text := alice.ask(whoami, "X-Other: \r\n")
			text = strings.Replace(text, "X-Other: ", "X-Other: "+strings.Repeat("x", most+over-len(text)), 1)
			conn := r.mustConnect(t, text)
			a, err := nethttp.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || a.StatusCode != status {
				t.Errorf("%d bytes, %d allowed: %v %v, want %d", len(text), most, a, err, status)
			}
		}
	}
}

// Without room on the disk, messages are refused; all else goes on.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	first := alice.sendOnce("k", letter(bob)).want(201)
	id := alice.mustSend(bob).MessageID
	r.settings.db.MinFreeDisk = 1 << 62
	r.mustRestart()
	alice.r, bob.r = r, r
	alice.post(messages, letter(bob)).wantProblem(507, relay.DiskFull)
	alice.sendOnce("k", letter(bob)).wantReplay(first)
	r.anyone("GET", "/readyz").want(200).wantField("accepting_messages", "false")
	bob.get(messagePath(id) + "/payload").want(200)
	bob.mustDeliver(id)
	bob.mustAck(id, "completed")
	bob.get(inboxPath(bob)).want(200).wantField("pending", "1")
	if p := bob.history(""); len(p.Messages) != 2 {
		t.Errorf("%d messages", len(p.Messages))
	}
	r.mustIssue("carol^demo").get(whoami).want(200)
	r.wantMessages(2)
}

func TestShuttingDown(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	r.anyone("GET", "/readyz").want(200)
	r.api.Drain()
	alice.get(whoami).wantProblem(503, relay.ShuttingDown)
	alice.post(messages, letter(alice)).wantProblem(503, relay.ShuttingDown)
	alice.get(socketPath(alice), handshake).wantProblem(503, relay.ShuttingDown)
	r.anyone("GET", "/readyz").wantProblem(503, relay.ShuttingDown)
	r.anyone("GET", "/livez").want(200)
	alice.get("/api/v1/nothing").wantProblem(404, relay.NotFound)
	r.wantMessages(0)
}

func TestTheStoreHasClosed(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	id := alice.mustSend(alice).MessageID
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	alice.post(messages, letter(alice)).wantProblem(503, relay.ShuttingDown)
	alice.get(messagePath(id)).wantProblem(503, relay.ShuttingDown)
	alice.post(messagePath(id)+"/deliver", "").wantProblem(503, relay.ShuttingDown)
	r.wantMessages(1)
}

// When the store keeps a send waiting for longer than a request may take to
// arrive, its client gets its answer all the same, and so does who repeats it.
func TestASlowStore(t *testing.T) {
	t.Parallel()
	r := mustServe(t, waitsLong, func(s *settings) { s.timeouts.Body = time.Second })
	alice := r.mustIssue("alice^demo")
	release := r.mustHoldWrites()
	answers := make(chan reply, 2)
	for range 2 {
		c := alice.prepare("POST", messages, letter(alice), idempotent("k"))
		go func() {
			a, err := r.try(c)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	select {
	case a := <-answers:
		t.Errorf("an answer though nothing can be written: %d %s", a.status, a.body)
		answers <- a
	case <-time.After(2500 * time.Millisecond): // it is time itself that is tested
	}
	release()
	one, two := <-answers, <-answers
	if t.Failed() {
		return
	}
	one.want(201)
	two.want(201)
	if string(one.body) != string(two.body) {
		t.Errorf("%s and %s", one.body, two.body)
	}
	r.wantMessages(1)
}

// A client that has said all it wants to say, and closed its side, looks like
// one that has gone. It gets its answer or none, but not an empty one.
func TestAClientThatClosesItsSide(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	id := alice.mustSend(alice).MessageID
	r.mustFill(alice, alice, 100)
	defer r.keepReadersBusy(alice)()
	for range 10 {
		conn := r.mustConnect(t, alice.ask(messagePath(id)+"/payload"))
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil || len(answer) > 0 && !strings.HasSuffix(string(answer), "\r\n\r\n{}") {
			t.Fatalf("%q, %v", answer, err)
		}
	}
}
