package cmd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/cmd"
	"relay/cmd/relaytest"

	"github.com/coder/websocket"
	"relay/db/scratch"
)

// output collects the output of a process, and lets a test wait for a line of it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed at the next write
}

func newOutput() *output { return &output{more: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) read() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.more
}

func (o *output) String() string {
	text, _ := o.read()
	return text
}

// server is a relay, or a command, that runs: in this process, or in one of its own.
type server struct {
	t              testing.TB
	url, db        string
	stdout, stderr *output
	halt           func() int // ends what runs in this process, as SIGTERM does, and gives its exit code
	cmd            *exec.Cmd  // nil: it runs in this process
	exited         chan struct{}
	code           int  // of what runs in this process and has ended
	node           bool // of a cluster: it may be without its lease for a moment, and ask and dial wait until it has it
}

// serveInCluster starts a server as a node of a cluster; nil: servers are alone.
var serveInCluster func(t testing.TB, env []string, db string, args []string) *server

// startServer runs a relay on a free port, in this process, and returns when it is ready. The long form
// starts a process.
func startServer(t testing.TB, db string, args ...string) *server {
	t.Helper()
	if scratch.IsLong() || serveInCluster != nil {
		return startProcess(t, db, args...)
	}
	s := &server{t: t, db: db, stderr: newOutput(), exited: make(chan struct{})}
	relay := relaytest.StartWith(t, s.stderr, append([]string{"--db", db}, args...)...)
	s.url = relay.URL
	s.halt = sync.OnceValue(func() int {
		if err := relay.Stop(); err != nil {
			t.Error(err)
			s.code = 1
		}
		close(s.exited)
		return s.code
	})
	if !isReady(s.url) {
		t.Fatalf("not ready:\n%s", s.stderr)
	}
	return s
}

// startProcess is startServer for a test that needs a process: it kills it, sends it signals, limits it,
// wants its exit code, or what it prints.
func startProcess(t testing.TB, db string, args ...string) *server {
	t.Helper()
	return startServerIn(t, nil, db, args...)
}

// startServerIn is startProcess with more environment.
func startServerIn(t testing.TB, env []string, db string, args ...string) *server {
	t.Helper()
	if serveInCluster != nil {
		return serveInCluster(t, env, db, args)
	}
	addr := scratch.Addr(t) // nobody gets it while the relay is away (startServerAt)
	s := launch(t, exec.Command(binary, append([]string{"serve", "--addr", addr, "--db", db}, args...)...), env)
	s.db = db
	s.url = s.await(s.stderr, `url"?[=:]"?(http://[^\s"]+)`)[1]
	if !isReady(s.url) {
		t.Fatalf("not ready:\n%s", s.stderr)
	}
	return s
}

// serveHere runs relay serve as a command: by startServer a relay prints nothing on stdout, and has no flags of rings.
// The long form starts a process.
func serveHere(t testing.TB, db string, args ...string) *server {
	t.Helper()
	s := launchHere(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--db", db}, args...), nil)
	s.db = db
	s.url = s.await(s.stderr, `url"?[=:]"?(https?://[^\s"]+)`)[1]
	return s
}

// startServerAt starts the relay of s again, at its address.
func startServerAt(t testing.TB, s *server) *server {
	t.Helper()
	again := launch(t, exec.Command(binary, "serve", "--addr", s.host(), "--db", s.db), nil)
	again.url, again.db = s.url, s.db
	again.await(again.stderr, `msg=serving`)
	return again
}

// launchHere starts a command with the environment of a client, in this process if flags can say as much,
// and does not wait. The long form starts a process.
func launchHere(t testing.TB, args, env []string) *server {
	t.Helper()
	flagged, ok := args, len(env) == 0
	if !ok {
		flagged, ok = flagsFor(t, args, env)
	}
	if !ok || scratch.IsLong() {
		return launch(t, exec.Command(binary, args...), env)
	}
	s := &server{t: t, stdout: newOutput(), stderr: newOutput(), exited: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(s.exited)
		s.code = cmd.Run(ctx, schema(), flagged, strings.NewReader(""), s.stdout, s.stderr)
	}()
	s.halt = func() int {
		cancel()
		<-s.exited
		return s.code
	}
	t.Cleanup(func() { s.halt() })
	return s
}

// launch starts the program and does not wait. Streams that are set stay so.
func launch(t testing.TB, c *exec.Cmd, env []string) *server {
	t.Helper()
	s := &server{t: t, stdout: newOutput(), stderr: newOutput(), cmd: c, exited: make(chan struct{})}
	s.cmd.Env = environ(env...)
	s.cmd.WaitDelay = patience // a child of its own may keep the streams open
	if s.cmd.Stdout == nil {
		s.cmd.Stdout = s.stdout
	}
	if s.cmd.Stderr == nil {
		s.cmd.Stderr = s.stderr
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := s.exited // launchOnTerminal has another one
	go func() {
		s.cmd.Wait() // the exit code is read from its ProcessState
		close(ended)
	}()
	t.Cleanup(func() { s.kill() })
	return s
}

// await waits until the output matches.
func (s *server) await(o *output, pattern string) []string {
	s.t.Helper()
	if o == nil {
		s.needsProcess()
	}
	re, late := regexp.MustCompile(pattern), time.After(patience)
	for {
		text, more := o.read()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-more:
		case <-s.exited:
			if !re.MatchString(o.String()) {
				s.t.Fatalf("it ended (exit %d) before it said %s:\n%s", s.exitCode(), pattern, s.stderr)
			}
		case <-late:
			s.t.Fatalf("no %s in:\n%s", pattern, text)
		}
	}
}

// ended reports whether the process has ended.
func (s *server) ended() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// kill is kill -9. Killing what has ended is fine.
func (s *server) kill() {
	s.needsProcess()
	s.cmd.Process.Kill()
	<-s.exited
}

func (s *server) needsProcess() {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatal("this needs a process: see startProcess")
	}
}

// end stops a server in order.
func (s *server) end() {
	s.t.Helper()
	if code := s.terminate(); code != 0 {
		s.t.Errorf("exit %d:\n%s", code, s.stderr)
	}
}

// terminate sends SIGTERM and gives the exit code.
func (s *server) terminate() int {
	s.t.Helper()
	return s.signal(syscall.SIGTERM)
}

func (s *server) signal(sig os.Signal) int {
	s.t.Helper()
	if s.cmd == nil && (sig == os.Interrupt || sig == syscall.SIGTERM) {
		return s.halt()
	}
	s.needsProcess()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
	return s.wait()
}

func (s *server) wait() int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.t.Fatalf("it did not end:\n%s", s.stderr)
	}
	return s.exitCode()
}

// exitCode returns the exit code of a process that has ended.
func (s *server) exitCode() int {
	if s.cmd == nil {
		return s.code
	}
	return s.cmd.ProcessState.ExitCode()
}

// send sends a message and gives what the 201 says of it.
func (s *server) send(from agent, to, payload string) record {
	s.t.Helper()
	body := fmt.Sprintf(`{"to":%q,"payload":%s}`, to, payload)
	return parse[record](s.t, s.ask(from, "POST", "/api/v1/messages", body).want(s.t, http.StatusCreated))
}

// history reads all pages.
func (s *server) history(a agent, query string) (all []record) {
	s.t.Helper()
	cursor := ""
	for {
		path := "/api/v1/mecha/" + a.Address + "/messages?limit=1000&" + query + cursor
		page := parse[struct {
			Messages   []record
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}](s.t, s.ask(a, "GET", path, "").want(s.t, http.StatusOK))
		all = append(all, page.Messages...)
		if !page.HasMore {
			return all
		}
		cursor = "&since_message_id=" + page.NextCursor
	}
}

// dial opens the agent's WebSocket. A node that says "not now" it asks again, as ask does.
func (s *server) dial(a agent, query string) *websocket.Conn {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		h := a.request("GET", "", "").header
		conn, resp, err := websocket.Dial(ctx, s.url+"/api/v1/ws/mecha/"+a.Address+query, &websocket.DialOptions{HTTPHeader: h})
		if err == nil {
			s.t.Cleanup(func() { conn.CloseNow() })
			return conn
		}
		ans := answer{}
		if resp != nil {
			ans.status = resp.StatusCode
			ans.body, _ = io.ReadAll(resp.Body)
		}
		if !s.node || !ans.isNotNow() || ctx.Err() != nil {
			s.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// wantClosed expects the relay to close a socket with a code, in time.
func wantClosed(t testing.TB, conn *websocket.Conn, code websocket.StatusCode, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if _, frame, err := conn.Read(ctx); websocket.CloseStatus(err) != code {
		t.Errorf("frame %q, error %v; want close code %d within %v", frame, err, code, within)
	}
}

// isReady asks /readyz once.
func isReady(url string) bool {
	resp, err := client.Get(url + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
