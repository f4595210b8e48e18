package http_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// A nonce is good for one request of its key, whatever the request is.
func TestANonceWorksOnce(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	later := func(c *call) { c.timestamp = relay.FormatTime(r.clock.Now().Add(time.Minute)) }
	for name, ask := range map[string]func(mecha, ...change) reply{
		"whoami":       func(m mecha, c ...change) reply { return m.get(whoami, c...) },
		"history":      func(m mecha, c ...change) reply { return m.get(historyPath(m), c...) },
		"inbox":        func(m mecha, c ...change) reply { return m.get(inboxPath(m), c...) },
		"send":         func(m mecha, c ...change) reply { return m.post(messages, letter(m), c...) },
		"conversation": func(m mecha, c ...change) reply { return m.get("/api/v1/conversations/none/messages", c...) },
		"no message":   func(m mecha, c ...change) reply { return m.get(messagePath("msg_none"), c...) },
		"profile":      func(m mecha, c ...change) reply { return m.get(profilePath("bob^demo"), c...) },
		"put profile":  func(m mecha, c ...change) reply { return m.put(`{}`, c...) },
		"handshake":    func(m mecha, c ...change) reply { return m.get(socketPath(m), append(c, handshake)...) },
	} {
		t.Run(name, func(t *testing.T) {
			n := nonce(strings.ReplaceAll(name, " ", "-"))
			if a := ask(alice.in(t), n); a.status == 401 {
				t.Fatalf("a fresh nonce got %s", a.body)
			}
			ask(alice.in(t), n).wantProblem(401, relay.NonceReused)
			ask(alice.in(t), n, later).wantProblem(401, relay.NonceReused)
			ask(alice.in(t), n, unsigned).wantProblem(401, relay.NonceReused)
			alice.in(t).get(inboxPath(alice), n).wantProblem(401, relay.NonceReused)
			alice.in(t).post(messages, letter(bob), n).wantProblem(401, relay.NonceReused)
			alice.in(t).get(socketPath(alice), n, handshake).wantProblem(401, relay.NonceReused)
			bob.in(t).get(whoami, n).want(200) // each key has its own
		})
	}
	second := r.mustIssue("alice^demo")
	alice.get(whoami, nonce("n")).want(200)
	second.get(whoami, nonce("n")).want(200)
}

// A nonce is remembered as long as a request with its timestamp could be accepted.
func TestANonceIsFreeAfterItsWindow(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	skew := r.settings.api.ClockSkew

	now := alice.prepare("GET", whoami, "")
	ahead := alice.prepare("GET", whoami, "", at(r.clock.Now().Add(skew)))
	r.mustDo(now).want(200)
	r.mustDo(ahead).want(200)

	r.clock.advance(skew)
	r.mustDo(now).wantProblem(401, relay.NonceReused)
	alice.get(whoami, nonce(now.nonce)).wantProblem(401, relay.NonceReused)
	r.clock.advance(10 * time.Second) // seconds longer do no harm
	r.mustDo(now).wantProblem(401, relay.TimestampOutOfRange)
	alice.get(whoami, nonce(now.nonce)).want(200)
	r.mustDo(ahead).wantProblem(401, relay.NonceReused)

	r.clock.advance(skew)
	r.mustDo(ahead).wantProblem(401, relay.TimestampOutOfRange)
	alice.get(whoami, nonce(ahead.nonce)).want(200)
}

// The clock is read when the whole request is there: else a body that comes
// slowly could carry a captured request past the memory of its nonce.
func TestASlowBodyIsNotAWayAroundTheWindow(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	c := alice.prepare("POST", messages, letter(alice))
	r.mustDo(c).want(201)
	r.clock.advance(r.settings.api.ClockSkew - time.Second)

	q, err := c.request(r.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", q.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: relay\r\nContent-Length: %d\r\nExpect: 100-continue\r\n", messages, len(c.body))
	q.Header.Write(conn)
	fmt.Fprint(conn, "\r\n")
	answers := bufio.NewReader(conn)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	r.clock.advance(time.Minute) // while the relay waits for the body
	fmt.Fprint(conn, c.body)
	answers.ReadString('\n') // the end of the 100
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, " 401 ") {
		t.Errorf("the captured request got %q, %v", line, err)
	}
	r.wantMessages(1)
}

func TestWhatIsRefusedBeforeTheNonceDoesNotBurnIt(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RequireSignature, s.api.MaxBody = true, 1000 })
	alice := r.mustIssue("alice^demo")
	large := letter(alice, `"x":"`+string(make([]byte, 2000))+`"`)
	for name, row := range map[string]struct {
		change
		body   string
		status int
		code   relay.Code
	}{
		"wrong signature":       {signedBy("mk_wrong"), letter(alice), 401, relay.InvalidSignature},
		"no signature":          {unsigned, letter(alice), 401, relay.SignatureRequired},
		"half signature":        {with("X-Signature", "AAAA"), letter(alice), 401, relay.MalformedHeader},
		"too large":             {stamped("2026-11-20T08:00:00Z"), large, 413, relay.PayloadTooLarge},
		"too large and chunked": {chunked, large, 413, relay.PayloadTooLarge},
		"encoded":               {with("Content-Encoding", "gzip"), letter(alice), 415, relay.UnsupportedEncoding},
		"out of time":           {stamped("2026-11-20T07:00:00Z"), letter(alice), 401, relay.TimestampOutOfRange},
		"typo in the key":       {with("X-Mecha-Key", typo(alice.Text)), letter(alice), 401, relay.MalformedKey},
	} {
		t.Run(name, func(t *testing.T) {
			n := nonce(strings.ReplaceAll(name, " ", "-"))
			alice.in(t).post(messages, row.body, row.change, n).wantProblem(row.status, row.code)
			alice.in(t).post(messages, letter(alice), n).want(201)
			alice.in(t).post(messages, letter(alice), n).wantProblem(401, relay.NonceReused)
		})
	}
	// A request that is refused later has been authenticated, and does.
	alice.post(messages, `{`, nonce("late")).wantProblem(400, relay.InvalidJSON)
	alice.post(messages, letter(alice), nonce("late")).wantProblem(401, relay.NonceReused)
}

// A request that changed something is refused when it is repeated, even when
// the process was killed in between and remembers nothing.
func TestReplaysAfterARestart(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*testRelay){"restart": (*testRelay).mustRestart, "kill": (*testRelay).mustCrash} {
		t.Run(name, func(t *testing.T) {
			r := mustServe(t)
			alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
			one, two := alice.mustSend(bob).MessageID, alice.mustSend(bob).MessageID
			calls := []*call{
				alice.prepare("POST", messages, letter(bob), at(r.clock.Now().Add(5*time.Minute))),
				alice.prepare("POST", messages, letter(bob), at(r.clock.Now().Add(-5*time.Minute))),
				bob.prepare("POST", messagePath(one)+"/deliver", ""),
				bob.prepare("POST", messagePath(two)+"/ack", ackBody("processing")),
				bob.prepare("POST", messagePath(two)+"/ack", ackBody("seen")),
			}
			for _, c := range calls {
				if a := r.mustDo(c); a.status >= 300 {
					t.Fatalf("%s", a.body)
				}
			}
			again(r)
			for _, c := range calls {
				r.mustDo(c).wantProblem(401, relay.NonceReused)
			}
			r.wantMessages(4)
			alice.mustSend(bob)
			r.clock.advance(10 * time.Minute) // the one that was ahead of its time has now passed
			again(r)
			for _, c := range calls {
				if a := r.mustDo(c); a.status != 401 {
					t.Fatalf("a replay got %d %s", a.status, a.body)
				}
			}
			r.wantMessages(5)
			again(r)
			r.clock.advance(time.Hour) // time in which a relay runs: a clock that jumps over a stop does not count
			alice.get(whoami, nonce(calls[0].nonce)).want(200)
		})
	}
}

// After a start that may have lost nonces, requests of before it are refused, for as
// long as their timestamps would be accepted, and over further restarts.
func TestAStartThatMayHaveLostNonces(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	early := []*call{alice.prepare("GET", whoami, ""), alice.prepare("GET", socketPath(alice), "", handshake), alice.prepare("GET", messagePath("msg_none"), "")}
	for _, c := range early {
		r.mustDo(c)
	}
	r.clock.advance(1700 * time.Millisecond)
	lose := func() {
		r.stop()
		if err := os.Remove(r.settings.db.Path + "-nonces"); err != nil {
			t.Fatal(err)
		}
		r.start()
	}
	late := alice.prepare("GET", whoami, "", at(r.clock.Now().Truncate(time.Second)))
	for _, again := range []func(){lose, r.mustRestart, r.mustCrash} {
		again()
		for _, c := range append(early, late) {
			p := r.mustDo(c).wantProblem(401, relay.TimestampOutOfRange)
			if p.ServerTime != relay.FormatTime(r.clock.Now()) {
				t.Errorf("server_time is %q", p.ServerTime)
			}
		}
		alice.get(whoami).want(200)
		if a := alice.get(socketPath(alice), handshake); a.status != 101 {
			t.Errorf("a fresh handshake got %d %s", a.status, a.body)
		}
		r.clock.advance(20 * time.Second)
	}
	r.clock.advance(r.settings.api.ClockSkew)
	alice.get(whoami, at(r.clock.Now().Add(-r.settings.api.ClockSkew))).want(200) // the rule has ended
}

// After a clean stop, a client that counts in whole seconds is not held up.
func TestASecondThatBeganBeforeTheStart(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	alice.get(whoami).want(200)
	r.clock.advance(1700 * time.Millisecond)
	for _, again := range []func(){r.mustRestart, r.mustCrash} {
		again()
		alice.get(whoami, at(r.clock.Now().Truncate(time.Second))).want(200)
	}
}

func TestNoncesHaveABound(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.db.MaxNonces = 3 })
	alice := r.mustIssue("alice^demo")
	for range 3 {
		alice.get(whoami).want(200)
	}
	alice.post(messages, letter(alice)).wantProblem(503, relay.Overloaded)
	r.wantMessages(0)
	r.clock.advance(time.Hour)
	for tries := 1; alice.get(whoami).status != 200; tries++ { // what has expired is forgotten bit by bit
		if tries == 1000 {
			t.Fatal("nonces whose time is over are not forgotten")
		}
	}
}
