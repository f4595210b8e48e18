// Package cmd_test runs the program as people and their agents do: as a
// process, over the network. Nothing here reaches into the program, and
// requests are signed by the interface's own words, not by the relay's code.
package cmd_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndTest(m)) }

func buildAndTest(m *testing.M) int {
	dir, err := os.MkdirTemp("", "relay-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "relay")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

const patience = 20 * time.Second // for what must happen, on a busy machine

// environ is this process's environment without what would steer a relay.
func environ(more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "RELAY_") && !strings.HasPrefix(e, "REQUIRE_MESSAGE_SIGNATURE=") {
			env = append(env, e)
		}
	}
	return append(env, more...)
}

// result is what a command left behind.
type result struct {
	out, err string
	code     int
}

// run runs the program to its end.
func run(t testing.TB, args, env []string, stdin string) result {
	t.Helper()
	return finish(t, exec.Command(binary, args...), env, stdin)
}

func finish(t testing.TB, c *exec.Cmd, env []string, stdin string) result {
	t.Helper()
	var out, stderr bytes.Buffer
	c.Env, c.Stdin, c.Stdout, c.Stderr = environ(env...), strings.NewReader(stdin), &out, &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { c.Process.Kill() })
	defer timer.Stop()
	if err := c.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return result{out.String(), stderr.String(), c.ProcessState.ExitCode()}
}

// relay runs the program; mustRelay expects it to succeed and gives its stdout.
func relay(t testing.TB, args ...string) result {
	t.Helper()
	return run(t, args, nil, "")
}

func mustRelay(t testing.TB, args ...string) string {
	t.Helper()
	r := relay(t, args...)
	if r.code != 0 {
		t.Fatalf("relay %s: exit %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// wantCode expects an exit code, and texts on stderr.
func (r result) wantCode(t testing.TB, code int, texts ...string) result {
	t.Helper()
	if r.code != code {
		t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.err, text) {
			t.Errorf("stderr lacks %q:\n%s", text, r.err)
		}
	}
	return r
}

// output collects what a process writes, for those who wait for a line of it.
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

// server is a relay serve that runs.
type server struct {
	t              testing.TB
	url, db        string
	stdout, stderr *output
	cmd            *exec.Cmd
	exited         chan struct{}
}

// startServer runs relay serve on a free port and returns when it is ready.
func startServer(t testing.TB, db string, args ...string) *server {
	t.Helper()
	return startServerIn(t, nil, db, args...)
}

func startServerIn(t testing.TB, env []string, db string, args ...string) *server {
	t.Helper()
	s := launch(t, exec.Command(binary, append([]string{"serve", "--addr", "127.0.0.1:0", "--db", db}, args...)...), env)
	s.db = db
	s.url = s.await(s.stderr, `url"?[=:]"?(http://[^\s"]+)`)[1]
	resp, err := client.Get(s.url + "/readyz")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("not ready: %v, %v", resp, err)
	}
	resp.Body.Close()
	return s
}

// launch starts the program and does not wait.
func launch(t testing.TB, c *exec.Cmd, env []string) *server {
	t.Helper()
	s := &server{t: t, stdout: newOutput(), stderr: newOutput(), cmd: c, exited: make(chan struct{})}
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = environ(env...), s.stdout, s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.cmd.Wait() // the exit code is read from its ProcessState
		close(s.exited)
	}()
	t.Cleanup(s.kill)
	return s
}

// await waits until the output matches.
func (s *server) await(o *output, pattern string) []string {
	s.t.Helper()
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
				s.t.Fatalf("the process ended (exit %d) before it said %s:\n%s", s.cmd.ProcessState.ExitCode(), pattern, s.stderr)
			}
		case <-late:
			s.t.Fatalf("no %s in:\n%s", pattern, text)
		}
	}
}

// kill is kill -9. Killing what has ended is fine.
func (s *server) kill() {
	s.cmd.Process.Kill()
	<-s.exited
}

// terminate sends SIGTERM and gives the exit code.
func (s *server) terminate() int {
	s.t.Helper()
	return s.signal(syscall.SIGTERM)
}

func (s *server) signal(sig os.Signal) int {
	s.t.Helper()
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
		s.t.Fatalf("the process did not end:\n%s", s.stderr)
	}
	return s.cmd.ProcessState.ExitCode()
}

// client is shared: its connections are reused as an agent's would be.
var client = &http.Client{Timeout: 90 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// agent is a Mecha with a key.
type agent struct {
	Address string  `json:"mecha_id"`
	KeyID   string  `json:"key_id"`
	Key     string  `json:"key"`
	Secret  *string `json:"signing_secret"`
}

// issue makes a key for each address.
func issue(t testing.TB, db string, args ...string) []agent {
	t.Helper()
	return agents(t, mustRelay(t, append([]string{"key", "create", "--create", "--json", "--db", db}, args...)...))
}

// agents reads what key create and key rotate print.
func agents(t testing.TB, lines string) (all []agent) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var a agent
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.Key == "" {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, a)
	}
	return all
}

// request is one signed request. Doing it twice is a replay.
type request struct {
	method, path, body string
	header             http.Header
}

// request signs anew. more are further headers, as name and value.
func (a agent) request(method, path, body string, more ...string) request {
	nonce, timestamp := rand.Text(), time.Now().UTC().Format(time.RFC3339Nano)
	secret := a.Key
	if a.Secret != nil {
		secret = *a.Secret
	}
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s|%s|%s", body, nonce, timestamp)
	h := http.Header{}
	h.Set("X-Mecha-Key", a.Key)
	h.Set("X-Nonce", nonce)
	h.Set("X-Request-Timestamp", timestamp)
	h.Set("X-Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for i := 0; i+1 < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return request{method, path, body, h}
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// to sends the request. An error means that its outcome is unknown.
func (r request) to(url string) (answer, error) {
	req, err := http.NewRequest(r.method, url+r.path, strings.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	req.Header = r.header.Clone()
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body}, err
}

// ask sends one signed request and expects an answer.
func (s *server) ask(a agent, method, path, body string, more ...string) answer {
	s.t.Helper()
	ans, err := a.request(method, path, body, more...).to(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	return ans
}

// want expects a status and gives the body.
func (a answer) want(t testing.TB, status int) []byte {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a.body
}

// wantProblem expects a refusal of a code.
func (a answer) wantProblem(t testing.TB, status int, code string) {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Fatalf("status %d %s, want %d %s", a.status, a.body, status, code)
	}
}

func (a answer) code() string {
	var p struct{ Code string }
	json.Unmarshal(a.body, &p) // no problem document: no code
	return p.Code
}

// record is what the tests read of a message.
type record struct {
	MessageID      string `json:"message_id"`
	ConversationID string `json:"conversation_id"`
	From, To       string
	State          string
	CreatedAt      time.Time `json:"created_at"`
	Ack            *struct{ Status string }
	Signed         bool
	Payload        json.RawMessage
}

func parse[T any](t testing.TB, body []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return v
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

// dial opens the agent's WebSocket.
func (s *server) dial(a agent, query string) *websocket.Conn {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	h := a.request("GET", "", "").header
	conn, _, err := websocket.Dial(ctx, s.url+"/api/v1/ws/mecha/"+a.Address+query, &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.CloseNow() })
	return conn
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

// eventually asks again until it is so, or the time is over.
func eventually(t testing.TB, within time.Duration, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// file names a database in a directory of its own.
func file(t testing.TB) string { return filepath.Join(t.TempDir(), "relay.db") }

func notOnWindows(t testing.TB, why string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("not on Windows: " + why)
	}
}

// tool finds a program that a test needs, or skips.
func tool(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	return names[0]
}
