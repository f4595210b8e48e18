package console_test

import (
	"context"
	"database/sql"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db"
	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
	"relay/db/scratch"
	"relay/http/console"
	"relay/http/console/operator"
	"relay/ws"
)

// patience is how long a test waits for what must happen, on the busiest machine.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && !testing.Short() {
		flag.Set("test.parallel", "6") // they wait for the browser, and for the timers of its pages
	}
	code := m.Run()
	closeBrowser()
	os.Exit(code)
}

// maria runs the relay.
var maria = relay.Actor{UID: 1000, User: "maria", Command: "console"}

// stage is a store with a console on it, in this process. Messages can be sent in its past.
type stage struct {
	*db.DB
	t       testing.TB
	path    string
	console *console.Console
	url     string // without the token
	server  *httptest.Server
	log     *lines
	mu      sync.Mutex
	online  map[relay.MechaNumber]bool
	hub     *ws.Hub // of a real server (serve); nil: the test says who is online
	health  console.ServerHealth
	nonce   relay.NonceHash
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Online, Open, Full and Health make a stage console.Live: what a test says of the server.
func (s *stage) Online(id relay.MechaNumber) bool {
	if s.hub != nil {
		return s.hub.Online(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.online[id]
}

func (s *stage) Open(id relay.MechaNumber) (sockets, longPolls int) {
	if s.hub != nil {
		return s.hub.Open(id)
	}
	if s.Online(id) {
		sockets = 1
	}
	return sockets, 0
}

func (s *stage) Full(id relay.MechaNumber) (open time.Time, sent int) {
	if s.hub != nil {
		return s.hub.Full(id)
	}
	return time.Time{}, 0
}

func (s *stage) Health() console.ServerHealth {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hub != nil {
		s.health.Accepting, s.health.Writable = s.AcceptsMessages(), s.CheckWritable() == nil
	}
	return s.health
}

// isOnline says that a Mecha has a socket open; say changes what else the server says.
func (s *stage) isOnline(k relay.IssuedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.online[k.Mecha.Number] = true
}

func (s *stage) say(f func(*console.ServerHealth)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.health)
}

// mustStage opens a store and shows it. With live, the console is the server's.
func mustStage(t testing.TB, live bool, options ...func(*console.Config)) *stage {
	t.Helper()
	s := mustStore(t, true)
	s.show(live, "127.0.0.1:0", options...)
	return s
}

// mustStore opens a store. Only one that serves indexes its messages late.
func mustStore(t testing.TB, serve bool) *stage {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, path: filepath.Join(scratch.Dir(t), "relay.db"), log: &lines{}, online: map[relay.MechaNumber]bool{}}
	s.health = console.ServerHealth{Accepting: true, Writable: true, IndexReady: true, IndexLag: 0}
	if s.DB, err = db.Open(db.Options{Path: s.path, Schema: string(schema), Create: true, Serve: serve, ClockSkew: 5 * time.Minute, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.DB.Close() })
	return s
}

// inNeutralFile is an option of a stage for pictures: the footer names no folder of the test.
func inNeutralFile(c *console.Config) { c.Store = neutral{c.Store} }

type neutral struct{ console.Store }

func (neutral) Path() string { return "/var/lib/relay/relay.db" }

// show starts the console.
func (s *stage) show(live bool, addr string, options ...func(*console.Config)) {
	s.t.Helper()
	in, err := browse.Inspect(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	config := console.Config{Store: survey.Inspector{Inspector: in}, Upgrade: ws.Feed, Logger: slog.New(slog.NewTextHandler(s.log, nil))}
	if live {
		config.Live, config.Operator = s, operator.New(s.DB, maria, "operator^demo")
	}
	for _, f := range options {
		f(&config)
	}
	s.console = console.New(config)
	s.server = httptest.NewUnstartedServer(s.console)
	s.server.Listener.Close()
	if s.server.Listener, err = net.Listen("tcp", addr); err != nil {
		s.t.Fatal(err)
	}
	s.server.Start()
	s.url = s.server.URL
	c, server := s.console, s.server
	s.t.Cleanup(func() {
		c.Close()
		server.Close()
		in.Close()
	})
}

// entry is the URL that lets in.
func (s *stage) entry(path string) string { return s.url + path + s.console.Fragment() }

// visitor is a client without a session; enter gives one with a session.
func (s *stage) visitor() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &http.Client{Jar: jar, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (s *stage) enter() *http.Client {
	s.t.Helper()
	c := s.visitor()
	_, token, _ := strings.Cut(s.console.Fragment(), "=")
	if status, text := s.post(c, "/session", url.Values{"secret": {token}}); status != http.StatusNoContent {
		s.t.Fatal(status, text)
	}
	return c
}

// get asks for a page as a browser does.
func (s *stage) get(c *http.Client, path string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	return s.do(c, r)
}

func (s *stage) post(c *http.Client, path string, form url.Values) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return s.do(c, r)
}

func (s *stage) do(c *http.Client, r *http.Request) (int, string) {
	s.t.Helper()
	answer, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (s *stage) mustIssue(a relay.Address, label string) relay.IssuedKey {
	s.t.Helper()
	k, err := s.Issue(&relay.IssueKey{At: time.Now().Add(-2 * time.Hour), Address: a, Label: label})
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

// mustSend sends a message, as long ago as past says.
func (s *stage) mustSend(past time.Duration, from relay.IssuedKey, to relay.Address, payload string, more ...func(*relay.SendMessage)) *relay.Message {
	s.t.Helper()
	s.nonce++
	m := &relay.SendMessage{At: time.Now().Add(-past), Key: from.Number, To: to, Payload: []byte(payload), Nonce: s.nonce}
	for _, f := range more {
		f(m)
	}
	if err := m.Validate(); err != nil {
		s.t.Fatal(err)
	}
	sent, err := s.Send(m)
	if err != nil {
		s.t.Fatal(err)
	}
	record, err := s.Message(context.Background(), from.Mecha.Number, sent.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	return record
}

// mustSee notes that a key was used, as long ago as past says.
func (s *stage) mustSee(past time.Duration, k relay.IssuedKey) {
	s.t.Helper()
	d, err := sql.Open("sqlite", s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Exec("PRAGMA busy_timeout = 60000; INSERT OR REPLACE INTO key_use VALUES (?, ?)", int64(k.Number), time.Now().Add(-past).UnixMilli()); err != nil {
		s.t.Fatal(err)
	}
}

// mustAck acknowledges a message, as long ago as past says.
func (s *stage) mustAck(past time.Duration, by relay.IssuedKey, m *relay.Message, status, detail string) {
	s.t.Helper()
	s.nonce++
	at := time.Now().Add(-past)
	a := &relay.Acknowledge{At: at, Key: by.Number, ID: m.ID, Status: status, ClientTS: relay.FormatTime(at), Detail: detail, Nonce: s.nonce}
	if err := a.Validate(); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Acknowledge(a); err != nil {
		s.t.Fatal(err)
	}
}

// mustSendMany sends n messages at once.
func (s *stage) mustSendMany(from relay.IssuedKey, to relay.Address, n int) {
	s.t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			m := &relay.SendMessage{At: time.Now(), Key: from.Number, To: to, Payload: []byte(`{}`), Nonce: relay.NonceHash(1<<40 + i)}
			if err := m.Validate(); err != nil {
				s.t.Error(err)
			} else if _, err := s.Send(m); err != nil {
				s.t.Error(err)
			}
		})
	}
	wg.Wait()
}
