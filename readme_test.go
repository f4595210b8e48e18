package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/cmd"
	"relay/cmd/relaytest"
	"relay/db/relay"
	"relay/db/scratch"
	"relay/http/docs"
)

// TestMain lets this test binary be relay itself, so that nothing need be built.
func TestMain(m *testing.M) {
	if os.Getenv("README_TEST_IS_RELAY") != "" {
		os.Exit(cmd.Main(schema, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	for _, v := range os.Environ() { // the settings of the person who runs the tests do not count
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "RELAY_") || name == "REQUIRE_MESSAGE_SIGNATURE" {
			os.Unsetenv(name)
		}
	}
	for _, name := range []string{"no_proxy", "NO_PROXY"} { // curl and Python would ask a proxy for 127.0.0.1
		os.Setenv(name, "127.0.0.1,localhost,"+os.Getenv(name))
	}
	os.Setenv("README_TEST_IS_RELAY", "1")
	os.Exit(m.Run())
}

// read returns a file; of Markdown, what is about the rings that are there.
func read(t *testing.T, name string) string {
	t.Helper()
	if filepath.Ext(name) == ".md" {
		return docs.Present(raw(t, name), docs.Has)
	}
	return raw(t, name)
}

func raw(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const pages = "http/docs/"

// blocks returns the fenced blocks of a language in a Markdown file.
func blocks(t *testing.T, file, language string) (all []string) {
	t.Helper()
	for _, b := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(read(t, file), -1) {
		all = append(all, b[1])
	}
	return all
}

// block returns the one of them that has some text.
func block(t *testing.T, file, language, text string) string {
	t.Helper()
	found := slices.DeleteFunc(blocks(t, file, language), func(b string) bool { return !strings.Contains(b, text) })
	if len(found) != 1 {
		t.Fatalf("%s has %d %s blocks with %q, not one", file, len(found), language, text)
	}
	return found[0]
}

// cell returns the second cell of a row of a file: | name | `cell` |
func cell(t *testing.T, file, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + " +\\| +`?(.*?)`? +\\|").FindStringSubmatch(read(t, file))
	if m == nil {
		t.Fatalf("%s has no row %s", file, name)
	}
	return m[1]
}

func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s here to run the example with", p)
		}
	}
}

// inTime ends before the time of all tests is over, so that a program that does not end is shown with
// what it has printed.
func inTime(t *testing.T) (context.Context, context.CancelFunc) {
	end, has := t.Deadline()
	if !has {
		return context.WithCancel(t.Context())
	}
	return context.WithTimeout(t.Context(), time.Until(end)*3/4)
}

func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	ctx, stop := inTime(t)
	defer stop()
	c := exec.CommandContext(ctx, name, args...)
	c.WaitDelay = time.Minute // what it has started may hold its output open
	var stderr bytes.Buffer
	c.Stdin, c.Stderr = strings.NewReader(stdin), &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, args, err, out, &stderr)
	}
	return string(out)
}

// runRelay runs a command of relay in this process, and returns what it prints.
func runRelay(t *testing.T, args ...string) string {
	t.Helper()
	var out, stderr bytes.Buffer
	if code := cmd.Run(t.Context(), schema, args, strings.NewReader(""), &out, &stderr); code != 0 {
		t.Fatalf("relay %s: exit %d\n%s%s", args, code, &out, &stderr)
	}
	return out.String()
}

// start runs a program until the test is over, and returns what it prints.
func start(t *testing.T, name string, args ...string) io.Reader {
	t.Helper()
	ctx, stop := inTime(t)
	c := exec.CommandContext(ctx, name, args...)
	out, err := c.StdoutPipe()
	if err != nil || c.Start() != nil {
		t.Fatalf("cannot start %s", name)
	}
	t.Cleanup(func() { stop(); _ = c.Wait() })
	return out
}

// asRelay makes this test binary the program relay of the shells that the test starts.
func asRelay(t *testing.T) {
	t.Helper()
	need(t, "sh")
	dir := t.TempDir()
	exe, err := filepath.Abs(os.Args[0])
	if err == nil {
		err = os.Symlink(exe, filepath.Join(dir, "relay"))
	}
	if err != nil {
		t.Skip("no symbolic link to the program can be made here: ", err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// serve starts a relay in this process for the commands of the test, and returns its url, and the keys of alice^demo and
// bob^demo.
func serve(t *testing.T, flags ...string) (known map[string]string) {
	t.Helper()
	t.Setenv("RELAY_DB", filepath.Join(scratch.Dir(t), "relay.db"))
	url := relaytest.Start(t, append(flags, "--db", os.Getenv("RELAY_DB"))...).URL
	t.Setenv("RELAY_URL", url)
	known = map[string]string{"url": url}
	keys := runRelay(t, "key", "create", "alice^demo", "bob^demo", "--json", "--label", "dev", "--expires", "7d")
	for line := range strings.Lines(keys) {
		var k struct {
			Address string `json:"mecha_id"`
			Key     string
		}
		if err := json.Unmarshal([]byte(line), &k); err != nil {
			t.Fatal(err)
		}
		known[k.Address] = k.Key
	}
	return known
}

// call does a signed request to the server of the test, and gives the answer, which may be a refusal.
// more are further headers, as name and value.
func call(t *testing.T, key, method, path, body string, more ...string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, os.Getenv("RELAY_URL")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	nonce, timestamp := rand.Text(), relay.FormatTime(time.Now())
	signature := relay.Sign(key, []byte(body), nonce, timestamp)
	headers := append(more, "X-Mecha-Key", key, "X-Nonce", nonce, "X-Request-Timestamp", timestamp,
		"X-Signature", base64.StdEncoding.EncodeToString(signature))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestSigningPrograms(t *testing.T) {
	const file = pages + "signing.md"
	nonce, want := cell(t, file, "nonce"), cell(t, file, "signature")
	vector := relay.Sign(cell(t, file, "key"), []byte(cell(t, file, "body")), nonce, cell(t, file, "timestamp"))
	if got := base64.StdEncoding.EncodeToString(vector); got != want {
		t.Errorf("the vector's signature is %s; %s says %s", got, file, want)
	}
	request := relay.SignRequest(cell(t, file, "key"), cell(t, file, "method"), cell(t, file, "path"), []byte(cell(t, file, "body")), nonce, cell(t, file, "timestamp"))
	if got, want := base64.StdEncoding.EncodeToString(request), cell(t, file, "request signature"); got != want {
		t.Errorf("the vector's request signature is %s; %s says %s", got, file, want)
	}
	gofile := write(t, "sign.go", block(t, file, "go", nonce))
	for language, command := range map[string][]string{"sh": {"sh", "-s"}, "python": {"python3", "-"}, "js": {"node", "-"}, "go": {"go", "run", gofile}} {
		t.Run(language, func(t *testing.T) {
			if need(t, command[0]); language == "sh" {
				need(t, "openssl")
			} else if !scratch.Long(t) {
				t.Skip("one language does; -long runs all")
			}
			if got := strings.TrimSpace(run(t, block(t, file, language, nonce), command[0], command[1:]...)); got != want {
				t.Errorf("the example prints %q, not %q", got, want)
			}
		})
	}
}

// The three lines of Install make a program that runs from PATH.
func TestREADMEInstall(t *testing.T) {
	if !scratch.Long(t) {
		t.Skip("links the program; -long does")
	}
	need(t, "sh", "go")
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} { // else they would be below HOME
		t.Setenv(name, strings.TrimSpace(run(t, "", "go", "env", name)))
	}
	t.Setenv("HOME", t.TempDir())
	script := "set -e\n" + block(t, "README.md", "sh", "go build") + "command -v relay && relay version"
	if got := run(t, script, "sh", "-s"); !strings.HasPrefix(got, os.Getenv("HOME")) || !strings.Contains(got, "\nrelay ") {
		t.Errorf("it prints %s", got)
	}
}

// The tables of settings have the defaults and the texts of the flags of relay serve; the page
// may add links and code marks.
func TestSettingsPage(t *testing.T) {
	const file = pages + "settings.md"
	help := strings.Replace(runRelay(t, "serve", "--help"), "-h, --help", "", 1) // not a setting
	help = regexp.MustCompile(`\n {20,}`).ReplaceAllString(help, " ")            // the lines of one flag
	flags := map[string][]string{}                                               // text and default
	line := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)(?: \S+)? {2,}(.*?)(?: \(default "?(.*?)"?\))?$`)
	for _, f := range line.FindAllStringSubmatch(help, -1) {
		flags[f[1]] = f[2:]
	}
	markup, rows := regexp.MustCompile("`|\\[([^]]*)\\]\\([^)]*\\)"), 0
	row := regexp.MustCompile("(?m)^(\\| `--([a-z-]+)` +\\| )(.*?)( +\\| )(.*?)( \\|.*)$")
	plain := func(cell string) string { return markup.ReplaceAllString(markup.ReplaceAllString(cell, "$1"), "") }
	old := raw(t, file)
	text := row.ReplaceAllStringFunc(old, func(r string) string {
		m := row.FindStringSubmatch(r)
		f := flags[m[2]]
		if f == nil {
			return r // of a ring that is not there
		}
		rows++
		if value := plain(m[3]); value != f[1] && (f[1] != "" || value != "off" && value != "none") {
			m[3] = "`" + f[1] + "`"
		}
		if plain(m[5]) != f[0] {
			m[5] = f[0]
		}
		return m[1] + m[3] + m[4] + m[5] + m[6]
	})
	shown := len(row.FindAllString(read(t, file), -1))
	if rows != len(flags) || rows != shown || rows == 0 {
		t.Errorf("%s shows %d settings, of which relay serve has %d; it has %d flags", file, shown, rows, len(flags))
	}
	switch {
	case text == old:
	case *update:
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the flags of relay serve: go test . -run TestSettingsPage -update, then add links", file)
	}
}

func TestEndpointsAndFunctionsAreNamedRightly(t *testing.T) {
	routes := 0
	for _, r := range regexp.MustCompile(`\{"(\w+)", "(/api/.*?)", `).FindAllStringSubmatch(read(t, "http/server.go"), -1) {
		if row := "| `" + r[1] + " " + r[2] + "` "; !strings.Contains(read(t, pages+"protocol.md"), row) {
			t.Errorf("the table of endpoints has no row %s", row)
		}
		routes++
	}
	if routes < 14 {
		t.Errorf("only %d routes were found", routes)
	}
	rows := regexp.MustCompile("(?m)^\\| `[A-Z]+ /api/").FindAllString(read(t, pages+"protocol.md"), -1)
	if len(rows) != routes {
		t.Errorf("protocol.md has %d endpoints, the route table %d", len(rows), routes)
	}
	file, name := regexp.MustCompile("`((?:cmd|db|http|ws|search)(?:/\\w+)+\\.go)`"), regexp.MustCompile("`(\\w+)`")
	_, way, _ := strings.Cut(read(t, pages+"architecture.md"), "\n## How one message goes\n")
	named := 0
	for line := range strings.SplitSeq(way, "\n") {
		source := ""
		for _, f := range file.FindAllStringSubmatch(line, -1) {
			if !isTakenOff(t, path.Dir(f[1])) {
				source += read(t, f[1])
			}
		}
		if cells := strings.Split(line, "|"); len(cells) == 5 && source != "" {
			for _, f := range name.FindAllStringSubmatch(cells[2], -1) {
				if named++; !regexp.MustCompile(`(?m)^func (\(.*?\) )?` + f[1] + `\(`).MatchString(source) {
					t.Errorf("architecture.md: there is no function %s in %s", f[1], cells[1])
				}
			}
		}
	}
	if named < 30 {
		t.Errorf("architecture.md names only %d functions", named)
	}
}

// The block of the first message is pasted; then bob receives with the listener
// of the page on sockets, which the usual form only compiles.
func TestREADMEFirstMessage(t *testing.T) {
	need(t, "sh", "curl", "openssl", "awk", "go")
	asRelay(t)
	known := serve(t, "--require-message-signature")
	steps := strings.ReplaceAll(block(t, "README.md", "sh", "key create you^demo"), "http://127.0.0.1:8080", known["url"])
	sent, want := 2, []string{`{"text":"hello, bob"}`, `{"text":"hello again"}`}
	if !docs.Has("agent") { // then only curl sends, and nothing reads
		sent, want = 1, want[:1]
	}
	if got := run(t, steps, "sh", "-s"); strings.Count(got, `{"message_id"`) != sent*sent {
		t.Errorf("%d messages are sent and read, but this is printed:\n%s", sent, got)
	}
	source, listen := write(t, "listen.go", block(t, pages+"sockets.md", "go", "// listen.go")), os.DevNull
	if scratch.Long(t) {
		listen = filepath.Join(t.TempDir(), "listen.exe")
	}
	run(t, "", "go", "build", "-o", listen, source)
	if listen == os.DevNull {
		return
	}
	t.Setenv("RELAY_KEY", known["bob^demo"])
	heard := bufio.NewScanner(start(t, listen, strings.Replace(known["url"], "http", "ws", 1)+"/api/v1/ws/mecha/bob^demo"))
	for _, want := range want {
		if !heard.Scan() || !strings.HasSuffix(heard.Text(), want) {
			t.Errorf("the listener prints %q, not %s", heard.Text(), want)
		}
	}
}
