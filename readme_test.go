package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/cmd"
	"relay/db/relay"
)

// TestMain lets this test binary be relay itself, so that nothing need be built.
func TestMain(m *testing.M) {
	if os.Getenv("README_TEST_IS_RELAY") != "" {
		os.Exit(cmd.Main(schema, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	for _, v := range os.Environ() { // settings of whoever runs the tests do not count
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "RELAY_") || name == "REQUIRE_MESSAGE_SIGNATURE" {
			os.Unsetenv(name)
		}
	}
	os.Setenv("README_TEST_IS_RELAY", "1")
	os.Exit(m.Run())
}

func read(t *testing.T, name string) string {
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

// block gives the one fenced block of a language in the README that has some text.
func block(t *testing.T, language, text string) string {
	t.Helper()
	var found []string
	for _, b := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(read(t, "README.md"), -1) {
		if strings.Contains(b[1], text) {
			found = append(found, b[1])
		}
	}
	if len(found) != 1 {
		t.Fatalf("README.md has %d %s blocks with %q, not one", len(found), language, text)
	}
	return found[0]
}

// cell gives the second cell of a row of the README: | name | `cell` |
func cell(t *testing.T, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + " \\| `?(.*?)`? \\|").FindStringSubmatch(read(t, "README.md"))
	if m == nil {
		t.Fatalf("README.md has no row %s", name)
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

func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	c.Stdin, c.Stderr = strings.NewReader(stdin), &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, args, err, out, &stderr)
	}
	return string(out)
}

// start runs a program until the test is over, and gives what it prints.
func start(t *testing.T, name string, args ...string) io.Reader {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	c := exec.CommandContext(ctx, name, args...)
	out, err := c.StdoutPipe()
	if err != nil || c.Start() != nil {
		t.Fatalf("cannot start %s", name)
	}
	t.Cleanup(func() { stop(); _ = c.Wait() })
	return out
}

func TestREADMESignatures(t *testing.T) {
	nonce, want := cell(t, "nonce"), cell(t, "signature")
	vector := relay.Sign(cell(t, "key"), []byte(cell(t, "body")), nonce, cell(t, "timestamp"))
	if got := base64.StdEncoding.EncodeToString(vector); got != want {
		t.Errorf("the vector's signature is %s; README.md says %s", got, want)
	}
	gofile := write(t, "sign.go", block(t, "go", nonce))
	for language, command := range map[string][]string{"sh": {"sh", "-s"}, "python": {"python3", "-"}, "js": {"node", "-"}, "go": {"go", "run", gofile}} {
		t.Run(language, func(t *testing.T) {
			if need(t, command[0]); language == "sh" {
				need(t, "openssl")
			}
			if got := strings.TrimSpace(run(t, block(t, language, nonce), command[0], command[1:]...)); got != want {
				t.Errorf("the example prints %q, not %q", got, want)
			}
		})
	}
}

func TestREADMEDemo(t *testing.T) {
	changing := regexp.MustCompile(`msg_[0-9a-z]{26}|127\.0\.0\.1:\d+|mk_\w+…|\d\d:\d\d:\d\d\.\d{3}`)
	want := strings.TrimPrefix(block(t, "text", "$ go run . demo"), "$ go run . demo\n")
	if got := run(t, "", os.Args[0], "demo"); changing.ReplaceAllString(got, "•") != changing.ReplaceAllString(want, "•") {
		t.Errorf("relay demo now prints this, and README.md something else:\n%s", got)
	}
}

func TestREADMESettings(t *testing.T) {
	help := strings.Replace(run(t, "", os.Args[0], "serve", "--help"), "-h, --help", "", 1) // not a setting
	flags := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+) .*?(?:\(default "?(.*?)"?\))?$`).FindAllStringSubmatch(help, -1)
	for _, f := range flags {
		if got := cell(t, "`--"+f[1]+"`"); got != f[2] && (f[2] != "" || got != "off" && got != "none") {
			t.Errorf("--%s: the default is %q; README.md says %q", f[1], f[2], got)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `--[a-z-]+` \\|").FindAllString(read(t, "README.md"), -1)
	if len(rows) != len(flags) || len(flags) == 0 {
		t.Errorf("README.md has %d settings, relay serve %d", len(rows), len(flags))
	}
}

func TestREADMEPaths(t *testing.T) {
	param := regexp.MustCompile(`:(\w+)`)
	for _, r := range regexp.MustCompile(`(?:api\("|r\.)(GET|POST|PUT)[",( ]+(/api/.*?)"`).FindAllStringSubmatch(read(t, "http/server.go"), -1) {
		if row := "| `" + r[1] + " " + param.ReplaceAllString(r[2], "{$1}") + "`"; !strings.Contains(read(t, "README.md"), row) {
			t.Errorf("the API table has no row %s", row)
		}
	}
	file, name := regexp.MustCompile("`((?:cmd|db|http|ws)/\\w+\\.go)`"), regexp.MustCompile("`(\\w+)`")
	for line := range strings.SplitSeq(read(t, "README.md")+read(t, "CONTRIBUTING.md"), "\n") {
		source := ""
		for _, f := range file.FindAllStringSubmatch(line, -1) {
			source += read(t, f[1])
		}
		if cells := strings.Split(line, "|"); len(cells) == 5 && source != "" { // the way into the code
			for _, f := range name.FindAllStringSubmatch(cells[2], -1) {
				if !regexp.MustCompile(`(?m)^func (\(.*?\) )?` + f[1] + `\(`).MatchString(source) {
					t.Errorf("CONTRIBUTING.md: there is no function %s in %s", f[1], cells[1])
				}
			}
		}
	}
}

// The worker of one block answers the question of the other.
func TestREADMEWorker(t *testing.T) {
	need(t, "sh", "awk", "date")
	t.Setenv("RELAY_DB", filepath.Join(t.TempDir(), "relay.db"))
	var dev map[string]string
	server := start(t, os.Args[0], "serve", "--dev", "--json", "--addr", "127.0.0.1:0")
	if err := json.NewDecoder(server).Decode(&dev); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RELAY_URL", dev["url"])
	program := strings.NewReplacer("$(relay ", "$('"+os.Args[0]+"' ", "\nrelay ", "\n'"+os.Args[0]+"' ")
	worker := block(t, "sh", "relay listen --reply")
	start(t, "sh", "-c", strings.Replace(program.Replace(worker), "\n'", "\nexec '", 1)) // one process, to be ended
	for end := time.Now().Add(20 * time.Second); exec.Command(os.Args[0], "mecha", "show", "clock^demo").Run() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the worker registers nobody")
		}
	}
	got := run(t, program.Replace(block(t, "sh", "--wait-reply")), "sh", "-s")
	if !regexp.MustCompile(`(?s)^\{"time":"\d\d:\d\d"\}\n.*acknowledged completed`).MatchString(got) {
		t.Errorf("the question gets no answer:\n%s", got)
	}
}

// The block of First steps is pasted; then bob receives with the listener.
func TestREADMEFirstSteps(t *testing.T) {
	need(t, "sh", "curl", "openssl", "awk", "go")
	t.Setenv("RELAY_DB", filepath.Join(t.TempDir(), "relay.db"))
	var dev map[string]string
	server := start(t, os.Args[0], "serve", "--dev", "--json", "--addr", "127.0.0.1:0", "--require-message-signature")
	if err := json.NewDecoder(server).Decode(&dev); err != nil {
		t.Fatal(err)
	}
	steps := strings.NewReplacer("go run .", "'"+os.Args[0]+"'", "http://127.0.0.1:8080", dev["url"]).Replace(block(t, "sh", "key create you^demo"))
	if got := run(t, steps, "sh", "-s"); strings.Count(got, `{"message_id"`) != 4 {
		t.Errorf("two messages are sent and read, but the first steps print:\n%s", got)
	}
	t.Setenv("RELAY_KEY", dev["bob^demo"])
	listen := filepath.Join(t.TempDir(), "listen.exe")
	run(t, "", "go", "build", "-o", listen, write(t, "listen.go", block(t, "go", "// listen.go")))
	heard := bufio.NewScanner(start(t, listen, strings.Replace(dev["url"], "http", "ws", 1)+"/api/v1/ws/mecha/bob^demo"))
	for _, want := range []string{`{"text":"hello, bob"}`, `{"text":"hello again"}`} {
		if !heard.Scan() || !strings.HasSuffix(heard.Text(), want) {
			t.Errorf("the listener prints %q, not %s", heard.Text(), want)
		}
	}
}
