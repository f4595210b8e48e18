package cmd_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// slowSend begins a send whose body the relay has started to read, and gives what finishes it.
func slowSend(s *server, from agent, body string) (finish func() (answer, error)) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "POST /api/v1/messages HTTP/1.1\r\nHost: relay\r\nContent-Length: %d\r\nExpect: 100-continue\r\n", len(body))
	from.request("POST", "", body).header.Write(conn)
	fmt.Fprint(conn, "\r\n")
	r := bufio.NewReader(conn)
	// The 100 is written when the body is first read: the request is under way.
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		s.t.Fatalf("%q, %v", line, err)
	}
	if _, err := r.ReadString('\n'); err != nil {
		s.t.Fatal(err)
	}
	return func() (answer, error) {
		fmt.Fprint(conn, body)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return answer{}, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return answer{resp.StatusCode, resp.Header, text}, err
	}
}

// A relay that was told to stop waits 5 s for what is under way. untilInTime plays a scene again
// that returns false, because this machine took longer for it.
func untilInTime(t *testing.T, scene func() bool) {
	t.Helper()
	for range 10 {
		if scene() {
			return
		}
	}
	t.Error("it never came to its end within 4 s")
}

// tooLate reports whether a relay that was told to stop at a time may have given up what was under way.
func tooLate(told time.Time) bool { return time.Since(told) > 4*time.Second }

func TestSIGTERMFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGTERM")
	untilInTime(t, func() bool { return finishesWhatIsUnderWay(t) })
}

func finishesWhatIsUnderWay(t *testing.T) bool {
	db := tempDB(t)
	keys := issue(t, db, "alice^stop", "bob^stop", "carol^stop")
	alice, bob, carol := keys[0], keys[1], keys[2]
	s := startProcess(t, db)
	sockets := []*websocket.Conn{s.dial(alice, ""), s.dial(bob, ""), s.dial(bob, "?sync_limit=0")}
	finishSend := slowSend(s, alice, `{"to":"bob^stop","payload":{"text":"nearly"}}`)
	polled := make(chan answer, 1)
	go func() {
		ans, _ := carol.request("GET", "/api/v1/mecha/carol^stop/messages?wait=60", "").to(s.url)
		polled <- ans
	}()
	eventually(t, patience, "the long-poll has arrived", func() bool {
		return strings.Contains(string(s.ask(alice, "GET", "/api/v1/mecha/carol^stop/profile", "").want(t, 200)), `"online":true`)
	})

	code, told := make(chan int, 1), time.Now()
	go func() { code <- s.terminate() }()
	for _, conn := range sockets {
		wantClosed(t, conn, websocket.StatusGoingAway, patience)
	}
	finished, err := finishSend()
	if err != nil && tooLate(told) {
		<-code
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	m := parse[record](t, finished.want(t, 201))
	if ans := <-polled; ans.status != 200 && ans.status != 503 {
		t.Errorf("the long-poll got %d %s", ans.status, ans.body)
	}
	if got := <-code; got != 0 {
		t.Errorf("exit %d:\n%s", got, s.stderr)
	}
	wantFiles(t, filepath.Dir(db), "relay.db", "relay.db-nonces", "relay.db.index", "relay.db.lock") // the log has been copied back

	s = startServer(t, db)
	if h := s.history(bob, ""); len(h) != 1 || h[0].MessageID != m.MessageID {
		t.Errorf("after the restart bob has %+v", h)
	}
	s.end()
	return true
}

// An acknowledgement counts although the relay was told to stop before it had read the
// frame: a client that resumes with a cursor would never see the message again.
func TestAcknowledgementsUnderWayAtTheStopCount(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGTERM")
	untilInTime(t, func() bool { return acknowledgementsCount(t) })
}

func acknowledgementsCount(t *testing.T) bool {
	db := tempDB(t)
	keys := issue(t, db, "alice^stop", "bob^stop")
	alice, bob := keys[0], keys[1]
	s := startProcess(t, db)
	const n = 400
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range n / 8 {
				s.send(alice, bob.Address, `{}`)
			}
		})
	}
	wg.Wait()
	conn := s.dial(bob, "?sync_limit=1000")
	var acks []string
	for range n {
		_, text, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		acks = append(acks, fmt.Sprintf(`{"type":"ack","message_id":%q,"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`, parse[record](t, text).MessageID))
	}
	for _, ack := range acks {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(ack)); err != nil {
			t.Fatal(err)
		}
	}
	code, told := make(chan int, 1), time.Now()
	go func() { code <- s.terminate() }()
	wantClosed(t, conn, websocket.StatusGoingAway, patience)
	late := tooLate(told)
	if got := <-code; got != 0 {
		t.Errorf("exit %d:\n%s", got, s.stderr)
	}
	s = startServer(t, db)
	pending := s.history(bob, "state=pending")
	if len(pending) > 0 && !late {
		t.Errorf("%d of %d messages are still pending", len(pending), n)
	}
	return len(pending) == 0 || !late
}

// Browsers open connections ahead of need, and slow clients never end.
func TestNobodyCanHoldUpTheStop(t *testing.T) {
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^stop")[0]
	s := startProcess(t, db)
	idle, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200) // accepted after idle: idle has been accepted
	slowSend(s, a, `{"to":"a^stop","payload":{}}`)
	began := time.Now()
	if code := s.terminate(); code != 0 {
		t.Errorf("exit %d:\n%s", code, s.stderr)
	}
	if took := time.Since(began); took > 20*time.Second { // the body may take 30 s
		t.Errorf("it took %v", took)
	}
}

func TestNothingIsAcceptedWhileItStops(t *testing.T) {
	notOnWindows(t, "there is no SIGTERM")
	untilInTime(t, func() bool { return acceptsNothingMore(t) })
}

func acceptsNothingMore(t *testing.T) bool {
	db := tempDB(t)
	a := issue(t, db, "a^stop")[0]
	s := startProcess(t, db)
	conn := s.dial(a, "")
	finishSend := slowSend(s, a, `{"to":"a^stop","payload":{}}`)
	code, told := make(chan int, 1), time.Now()
	go func() { code <- s.terminate() }()
	wantClosed(t, conn, websocket.StatusGoingAway, patience)
	if ans, err := a.request("GET", "/api/v1/whoami", "").to(s.url); err == nil {
		ans.wantProblem(t, 503, "shutting_down")
		if ans.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	finished, err := finishSend()
	got := <-code
	switch {
	case err != nil && tooLate(told):
		return false
	case err != nil || got != 0:
		t.Errorf("exit %d, %v", got, err)
	default:
		finished.want(t, 201)
	}
	return true
}

func TestALogThatNobodyReadsStopsNothing(t *testing.T) {
	notOnWindows(t, "there is no SIGTERM")
	db := tempDB(t)
	a := issue(t, db, "a^stop")[0]
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--db", db)
	c.Env, c.Stderr = environ(), w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	w.Close()
	rest := ""
	for log := bufio.NewScanner(r); rest == "" && log.Scan(); {
		_, rest, _ = strings.Cut(log.Text(), "url=")
	}
	r.Close()
	url, _, _ := strings.Cut(rest, " ")
	ans, err := a.request("GET", "/api/v1/whoami", "").to(url)
	if err != nil || ans.status != 200 {
		t.Fatal(err, ans.status)
	}
	c.Process.Signal(syscall.SIGTERM) // which it wants to log
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}
