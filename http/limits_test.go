package http_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay/db/relay"

	"relay/db/scratch/wire"
)

func TestRateOfAKey(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
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
	})
}

// Guessing is slowed down, but nobody can lock out anybody else.
func TestFailuresOfAnAddress(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
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
	})
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
	conn, err := wire.Dial(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
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

// A request that does not come in time is ended when its time is over, to the second.
func TestSlowRequests(t *testing.T) {
	const body = 30 * time.Second
	for name, row := range map[string]struct {
		begin  string // of a request without a key; "": that of a send, with more
		more   string
		limit  int64 // of a body; 0: none
		after  time.Duration
		answer string
	}{
		"nothing":        {"-", "", 1 << 20, patience, "HTTP/1.1 400 "},
		"half a line":    {"G", "", 1 << 20, patience, "HTTP/1.1 400 "},
		"half a head":    {"GET /livez HTTP/1.1\r\nHost: x\r\n", "", 1 << 20, patience, "HTTP/1.1 400 "},
		"a body":         {"", "Content-Length: 1000\r\n", 1 << 20, body, "HTTP/1.1 408 "},
		"a chunk":        {"", "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"to\"", 1 << 20, body, "HTTP/1.1 408 "},
		"any body":       {"", "Content-Length: 1000\r\n", 0, body, "HTTP/1.1 408 "},
		"any chunk":      {"", "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"to\"", 0, body, "HTTP/1.1 408 "},
		"the whole room": {"", "Content-Length: 9223372036854775807\r\n", 0, body, "HTTP/1.1 408 "}, // nothing is set aside for what is only announced
	} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				r := mustServe(t, func(s *settings) { s.timeouts.Body, s.api.MaxBody = body, row.limit })
				alice := r.mustIssue("alice^demo")
				text := strings.TrimPrefix(row.begin, "-")
				if row.begin == "" {
					text = alice.prepare("POST", messages, "").text(row.more)
				}
				conn := r.mustConnect(t, text)
				conn.SetDeadline(time.Time{})
				began := time.Now()
				rest, err := io.ReadAll(conn)
				told := strings.HasPrefix(string(rest), row.answer) || len(rest) == 0 && row.begin != "" // a head that is not whole may get no answer
				if d := time.Since(began); err != nil || !told || d < row.after || d > row.after+time.Second {
					t.Errorf("after %v: %q, %v", d, rest, err)
				}
				alice.get(whoami).want(200)
				r.wantMessages(0)
			})
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

// Without room on the disk, messages are refused; all else continues.
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
// arrive, its client gets its answer anyway, and so does who repeats it.
func TestASlowStore(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(s *settings) { s.timeouts.Body = time.Second })
		alice := r.mustIssue("alice^demo")
		busy := make(chan struct{})
		r.db.OnCommit(func(*relay.Commit) { <-busy }) // the writer does not continue to what follows
		answers := make(chan reply, 2)
		for i := range 3 {
			c := alice.prepare("POST", messages, letter(alice), idempotent(fmt.Sprint("k", min(i, 1))))
			go func() {
				a, err := r.try(c)
				if err != nil {
					t.Error(err)
				}
				if i > 0 {
					answers <- a
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		if len(answers) > 0 {
			t.Error("an answer though nothing can be written")
		}
		close(busy)
		one, two := (<-answers).want(201), (<-answers).want(201)
		if string(one.body) != string(two.body) {
			t.Errorf("%s and %s", one.body, two.body)
		}
		r.wantMessages(2)
	})
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
