package cmd_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/http/docs"
)

// consoleClient leads names under localhost to this machine, as browsers do.
func consoleClient(jar http.CookieJar) *http.Client {
	return &http.Client{Jar: jar, Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(addr); err == nil && strings.HasSuffix(host, ".localhost") {
			addr = net.JoinHostPort("127.0.0.1", port)
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}}}
}

// mustEnter gets a session of the console whose URL was printed, and a page of it.
func mustEnter(t *testing.T, shown string) (get func(path string) (int, string)) {
	t.Helper()
	base, token, ok := strings.Cut(shown, "/#t=")
	if !ok || len(token) < 40 {
		t.Fatalf("no URL with a token: %q", shown)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := consoleClient(jar)
	answer, err := c.PostForm(base+"/session", url.Values{"secret": {token}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		t.Fatal(answer.Status)
	}
	return func(path string) (int, string) {
		t.Helper()
		answer, err := c.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
}

// relay console shows a database whose server is down. --print-url finds it, by a file that
// only the owner can read, and that goes with it.
func TestTheConsoleWorksWithoutAServer(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	if r := runRelay(t, "console", "--db", db); r.code != 1 || !strings.Contains(r.err, db) {
		t.Errorf("without a database: %d %s", r.code, r.err)
	}
	alice := issue(t, db, "alice^demo")[0]
	s := startServer(t, db)
	m := s.send(alice, "alice^demo", `{"text":"hello"}`)
	s.end()
	if r := runRelay(t, "console", "--print-url", "--db", db); r.code != 1 || !strings.Contains(r.err, "no console runs") {
		t.Errorf("--print-url without a console: %d %s", r.code, r.err)
	}
	c := launchHere(t, []string{"console", "--db", db, "--listen", "127.0.0.1:0"}, nil)
	shown := c.await(c.stdout, `Open (http://[a-z2-7]{16}\.localhost:\d+/#t=\S+)`)[1]
	if got := mustRelay(t, "console", "--print-url", "--db", db); got != shown+"\n" {
		t.Errorf("--print-url: %q, want %q", got, shown)
	}
	var printed struct{ URL, DB string }
	if err := json.Unmarshal([]byte(mustRelay(t, "console", "--print-url", "--json", "--db", db)), &printed); err != nil || printed.URL != shown || printed.DB != db {
		t.Errorf("%+v, %v", printed, err)
	}
	left, err := filepath.Glob(db + ".console-*")
	if err != nil || len(left) != 2 {
		t.Error(left, err)
	}
	for _, path := range left {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 && os.PathSeparator == '/' {
			t.Error(info, err)
		}
	}
	again := launchHere(t, []string{"console", "--db", db, "--listen", "127.0.0.1:0"}, nil)
	other := again.await(again.stdout, `Open (http://[a-z2-7]{16}\.localhost:\d+/#t=\S+)`)[1]
	if name := regexp.MustCompile(`//[a-z2-7]+`); name.FindString(other) != name.FindString(shown) || other == shown {
		t.Errorf("the consoles are %s and %s, want the same name", shown, other)
	}
	get := mustEnter(t, shown)
	if status, page := get("/message/" + m.MessageID); status != http.StatusOK || !strings.Contains(page, "alice^demo") {
		t.Errorf("%d %s", status, page)
	}
	if strings.Contains(c.stderr.String(), shown[strings.Index(shown, "=")+1:]) {
		t.Errorf("the token is in the log: %s", c.stderr)
	}
	if os.PathSeparator != '/' {
		return // a process cannot be interrupted there
	}
	for _, c := range []*server{c, again} {
		if code := c.terminate(); code != 0 {
			t.Error(code, c.stderr)
		}
	}
	if left, _ := filepath.Glob(db + ".console*"); len(left) > 0 {
		t.Error("the files with the URL are still there: ", left)
	}
}

// Of several consoles, --print-url prints the URL of the last one; when that is killed, of the one
// before it, and nothing of the killed one stays.
func TestEachConsoleHasItsURL(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	issue(t, db, "alice^demo")
	start := func() (*server, string) {
		c := launch(t, exec.Command(binary, "console", "--db", db, "--listen", "127.0.0.1:0"), nil)
		return c, c.await(c.stdout, `Open (http://\S+/#t=\S+)`)[1]
	}
	_, first := start()
	second, shown := start()
	if got := mustRelay(t, "console", "--print-url", "--db", db); got != shown+"\n" {
		t.Errorf("with two: %q, want %q", got, shown)
	}
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); mustRelay(t, "console", "--print-url", "--db", db) != first+"\n"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first one is not found")
		}
	}
	if left, _ := filepath.Glob(db + ".console*"); len(left) != 2 {
		t.Errorf("the files of one console stay: %v", left)
	}
}

// relay serve --console shows what only the server knows, on a listener of its own.
func TestAServerShowsTheConsole(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	alice := issue(t, db, "alice^demo")[0]
	s := startServer(t, db, "--console", "127.0.0.1:0")
	shown := strings.TrimSpace(mustRelay(t, "console", "--print-url", "--db", db))
	s.dial(alice, "")
	get := mustEnter(t, shown)
	if status, page := get("/health"); status != http.StatusOK || !strings.Contains(page, "1, and 0 long-polls, of 1 Mecha") || !strings.Contains(page, "fsync") {
		t.Errorf("%d %s", status, page)
	}
	if answer, err := client.Get(s.url + "/health"); err != nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("the console is on the API's address, too: %v %v", answer, err)
	}
	if log := s.stderr.String(); !strings.Contains(log, "serving the console") || strings.Contains(log, shown[strings.Index(shown, "=")+1:]) {
		t.Errorf("the log: %s", log)
	}
	if os.PathSeparator == '/' {
		s.end()
	}
}

// With --dev there is a console, at another port if its own is taken, and --console off is for
// none.
func TestDevHasAConsole(t *testing.T) {
	if !docs.Has("dev") {
		t.Skip("there is no --dev")
	}
	t.Parallel()
	one := serveHere(t, tempDB(t), "--dev")
	two := serveHere(t, tempDB(t), "--dev")
	seen := map[string]bool{}
	for _, s := range []*server{one, two} {
		shown := s.await(s.stdout, `in a browser: (http://[a-z2-7]{16}\.localhost:\d+/#t=\S+)`)[1]
		if status, _ := mustEnter(t, shown)("/"); status != http.StatusOK || seen[shown] {
			t.Error(shown, status)
		}
		seen[shown] = true
	}
	off := serveHere(t, tempDB(t), "--dev", "--console", "off")
	off.await(off.stdout, `Ctrl-C`)
	if strings.Contains(off.stdout.String(), "browser") {
		t.Error(off.stdout)
	}
}

// A console that others can reach needs TLS and a password; one next to a server is for this
// machine alone.
func TestAConsoleForOthersNeedsTLSAndAPassword(t *testing.T) {
	t.Parallel()
	db, dir := tempDB(t), t.TempDir()
	password, short := filepath.Join(dir, "password"), filepath.Join(dir, "short")
	for name, text := range map[string]string{password: "correct horse battery\n", short: "secret\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, try := range []struct {
		args []string
		want string
	}{
		{[]string{"--console", "0.0.0.0:0"}, "needs TLS"},
		{[]string{"--console", "0.0.0.0:0", "--console-password-file", password}, "needs TLS"},
		{[]string{"--console", "127.0.0.1:0", "--console-password-file", short}, "12 characters"},
		{[]string{"--console", "127.0.0.1:0", "--console-password-file", filepath.Join(dir, "none")}, "cannot read the password"},
		{[]string{"--console", "nonsense"}, "host:port"},
	} {
		if r := runRefused(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--db", db}, try.args...), nil); r.code == 0 || !strings.Contains(r.err, try.want) {
			t.Errorf("%v: %d %s", try.args, r.code, r.err)
		}
	}
	if _, err := os.Stat(db); err == nil {
		t.Error("a refused start has made a database")
	}
	issue(t, db, "alice^demo")
	if r := runRelay(t, "console", "--db", db, "--listen", "0.0.0.0:0"); r.code != 2 || !strings.Contains(r.err, "loopback") {
		t.Errorf("%d %s", r.code, r.err)
	}
	s := startServer(t, db, "--console", "127.0.0.1:0", "--console-password-file", password)
	shown := strings.TrimSpace(mustRelay(t, "console", "--print-url", "--db", db))
	if strings.Contains(shown, "t=") {
		t.Errorf("a URL with a token: %s", shown)
	}
	answer, err := consoleClient(nil).PostForm(shown+"session", url.Values{"secret": {"correct horse battery"}})
	if err != nil || answer.StatusCode != http.StatusNoContent {
		t.Error(answer, err)
	}
	if strings.Contains(s.stderr.String(), "battery") {
		t.Error(s.stderr)
	}
}

// With --console-operator the console acts as that Mecha, and the audit log names the user and
// the console.
func TestTheConsoleActsAsItsOperator(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	bob := issue(t, db, "bob^demo")[0]
	for args, want := range map[string]string{"--console-operator=ops^demo": "needs --console", "--console=127.0.0.1:0 --console-operator=ops": "--console-operator: "} {
		runRefused(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--db", db}, strings.Fields(args)...), nil).wantCode(t, 2, want)
	}
	startServer(t, db, "--console", "127.0.0.1:0", "--console-operator", "ops^demo")
	shown, err := url.Parse(strings.TrimSpace(mustRelay(t, "console", "--print-url", "--db", db)))
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(shown.Fragment, "=")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := consoleClient(jar)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base := "http://" + shown.Host
	answer, err := c.PostForm(base+"/session", url.Values{"secret": {token}})
	if err != nil || answer.StatusCode != http.StatusNoContent {
		t.Fatal(answer, err)
	}
	answer, err = c.PostForm(base+"/key/"+bob.KeyID+"/revoke", url.Values{"confirmed": {"yes"}})
	if err != nil || answer.StatusCode != http.StatusSeeOther {
		t.Fatal(answer, err)
	}
	acts := audit(t, db)
	if last := acts[len(acts)-1]; last.By.Command != "console" || last.What != "key_revoked" || string(last.Key) != bob.KeyID {
		t.Errorf("%+v", acts)
	}
}
