// Package cmd_test runs the program as people and their agents do: as a
// process, over the network. Nothing here reaches into the program, and
// requests are signed by the interface's own words, not by the relay's code.
// Short commands run in this process, by the function that main calls (run), and so do relays
// that no test kills (startServer); the long form starts processes for these too.
package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/cmd"
	"relay/db/scratch"
	"relay/http/docs"
)

// binary is the program under test, built as its users do. For the race detector it is this
// test binary under another name, which is instrumented already.
var binary string

func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); name == programName {
		os.Exit(beRelay())
	}
	if to := os.Getenv(keepEnv); to != "" {
		os.Exit(keepProgram(to))
	}
	if path := os.Getenv(neighbourEnv); path != "" {
		os.Exit(beNeighbour(path))
	}
	flag.Parse()
	if flag.NArg() > 0 { // a relay in this process has shown its path as that of relay
		fmt.Fprintln(os.Stderr, "this program is tests, not relay")
		os.Exit(2)
	}
	forgetSettings()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "16") // most of the time they wait for one another's processes, or for the disk
	}
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=50") // else each process that the race detector looks at takes a second to end
	}
	debug.SetGCPercent(lazyGC) // processors are scarcer than memory
	if os.Getenv("GOGC") == "" && !scratch.IsLong() {
		os.Setenv("GOGC", strconv.Itoa(lazyGC)) // for the processes that the tests start
	}
	os.Exit(makeAndTest(m))
}

const lazyGC = 400

var programName = map[bool]string{false: "relay", true: "relay.exe"}[runtime.GOOS == "windows"]

// beRelay does what main does. The schema stands beside the program.
func beRelay() int {
	exe, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	schema, err := os.ReadFile(filepath.Join(filepath.Dir(exe), "schema.sql"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.Main(string(schema), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

func makeAndTest(m *testing.M) int {
	dir, err := os.MkdirTemp("", "relay-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, programName)
	if err := makeProgram(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// keepEnv is the environment variable that makes this test binary what go run starts for a
// program. Its value is the file that the program is copied to.
const keepEnv = "RELAY_TEST_KEEP"

// makeProgram makes the binary. To link it takes a processor a second or two, so go run does it,
// which keeps what it has linked. In return each of more than a thousand starts takes 7 ms
// less: nothing is initialized that only tests import.
func makeProgram(dir string) error {
	if raceDetector {
		return linkProgram(dir)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	run := exec.Command("go", "run", "-buildvcs=false", "-tags", testTags, "-exec", `"`+self+`"`, "..")
	run.Env = append(os.Environ(), keepEnv+"="+binary)
	if scratch.IsLong() {
		run.Env = append(run.Env, "CGO_ENABLED=0") // the short form uses what the tests were compiled for
	}
	if out, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("go run: %w\n%s", err, out)
	}
	return nil
}

// keepProgram copies the program that go run has made.
func keepProgram(to string) int {
	program, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = os.WriteFile(to, program, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// linkProgram makes the binary of this test binary. A link and not a symbolic one: the
// program looks for its own name to start itself.
func linkProgram(dir string) error {
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "schema.sql"), schema, 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil || os.Link(self, binary) == nil {
		return err
	}
	program, err := os.ReadFile(self) // on another file system
	if err != nil {
		return err
	}
	return os.WriteFile(binary, program, 0o700)
}

// mustLinkProgram puts the program into another folder.
func mustLinkProgram(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(binary), "*.sql")) // there is one beside linkProgram's alone
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, binary) {
		if err := os.Link(f, filepath.Join(dir, filepath.Base(f))); err != nil {
			t.Skip("the program cannot be linked there: ", err)
		}
	}
	return filepath.Join(dir, programName)
}

const patience = 3 * time.Minute // for what must happen, on the busiest machine

// forgetSettings removes what would steer a relay from this process's environment. What
// steers the tests stays.
func forgetSettings() {
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "RELAY_") && !strings.HasPrefix(name, "RELAY_TEST_") || name == "REQUIRE_MESSAGE_SIGNATURE" {
			os.Unsetenv(name)
		}
	}
	os.Setenv("RELAY_LOG_FORMAT", "text") // as on a terminal: the tests read lines for people
}

// environ is this process's environment, and more.
func environ(more ...string) []string { return append(os.Environ(), more...) }

// result is what a command left behind.
type result struct {
	out, err string
	code     int
}

// run runs the program to its end, with input and more environment. A client's command runs in
// this process, with flags in the place of env, and so does what runsHere names if it needs
// no env; the long form starts a process for these too. Tests that are not parallel have runAlone.
func run(t testing.TB, args, env []string, stdin string) result {
	t.Helper()
	if !scratch.IsLong() {
		if len(env) == 0 && runsHere(args) {
			return runHere(args, stdin)
		}
		if flagged, ok := inFlags(t, args, env); ok {
			return runHere(flagged, stdin)
		}
	}
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

// runRelay runs a command to its end, without input; mustRelay expects it to succeed and
// gives its stdout. To start a process takes four times as much of the processor as most
// commands do. So those that only read and write files, texts and answers run here.
func runRelay(t testing.TB, args ...string) result {
	t.Helper()
	return run(t, args, nil, "")
}

// runRefused runs a command that is refused at once, in this process, whatever would become of
// it otherwise; the long form starts a process.
func runRefused(t testing.TB, args, env []string) result {
	t.Helper()
	if !scratch.IsLong() {
		if flagged, ok := flagsFor(t, args, env); ok {
			args, env = flagged, nil
		}
	}
	if scratch.IsLong() || len(env) > 0 {
		return run(t, args, env, "")
	}
	return runHere(args, "")
}

// runHere runs a command in this process. One that does not end is cancelled at last.
func runHere(args []string, stdin string) result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, stderr := newOutput(), newOutput()
	code := cmd.Run(ctx, schema(), args, strings.NewReader(stdin), out, stderr)
	return result{out.String(), stderr.String(), code}
}

// runAlone runs a command with more environment in this process, and so in a test that is not parallel. The long form
// starts a process.
func runAlone(t testing.TB, args, env []string) (r result) {
	t.Helper()
	if scratch.IsLong() {
		return finish(t, exec.Command(binary, args...), env, "")
	}
	alone(t, env, func() { r = runHere(args, "") })
	return r
}

// alone does something with more environment. No other test runs meanwhile: a parallel test fails.
func alone(t testing.TB, env []string, do func()) {
	t.Helper()
	t.Setenv("RELAY_TEST_ALONE", "1")
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		before, was := os.LookupEnv(name)
		os.Setenv(name, value)
		defer func() {
			if os.Unsetenv(name); was {
				os.Setenv(name, before)
			}
		}()
	}
	do()
}

// runIn is runAlone in a folder.
func runIn(t testing.TB, dir string, args ...string) result {
	t.Helper()
	if scratch.IsLong() {
		c := exec.Command(binary, args...)
		c.Dir = dir
		return finish(t, c, nil, "")
	}
	back, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	schema() // by its path from here
	t.Chdir(dir)
	defer os.Chdir(back)
	return runHere(args, "")
}

// schema returns the text of schema.sql.
var schema = sync.OnceValue(func() string {
	text, err := os.ReadFile("../schema.sql")
	if err != nil {
		panic(err)
	}
	return string(text)
})

// InFlags is flagsFor for the client's commands that end by themselves. It returns false for
// other commands.
func inFlags(t testing.TB, args, env []string) (flagged []string, ok bool) {
	t.Helper()
	clients := []string{"ack", "ask", "curl", "deliver", "inbox", "listen", "mcp", "reply", "search", "send", "sign", "whoami"}
	if len(args) == 0 || !slices.Contains(clients, args[0]) {
		return nil, false
	}
	return flagsFor(t, args, env)
}

// flagsFor returns the arguments of a client's command that say what env says, with files for
// the secrets. It returns false where env has no key, or what flags cannot say.
func flagsFor(t testing.TB, args, env []string) (flagged []string, ok bool) {
	t.Helper()
	values := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	if values["RELAY_KEY"] == "" {
		return nil, false
	}
	flagged = []string{args[0]}
	for name, value := range values {
		switch name {
		case "RELAY_URL":
			if args[0] != "sign" { // which speaks to no relay
				flagged = append(flagged, "--url="+value)
			}
		case "RELAY_KEY":
			flagged = append(flagged, "--key-file="+write(t, value))
		case "RELAY_SIGNING_SECRET":
			flagged = append(flagged, "--signing-secret-file="+write(t, value))
		case "RELAY_CA_FILE":
			flagged = append(flagged, "--ca-file="+value)
		case "RELAY_RETRY":
			if slices.Contains([]string{"ask", "mcp", "reply", "send"}, args[0]) {
				flagged = append(flagged, "--retry="+value)
			}
		case "XDG_STATE_HOME":
			if args[0] == "listen" && !slices.ContainsFunc(args, func(a string) bool { return slices.Contains(stateless, a) }) {
				return nil, false // it keeps its place there
			}
		default:
			return nil, false
		}
	}
	return append(flagged, args[1:]...), true
}

// stateless are the flags by which listen keeps no place in the user's folder.
var stateless = []string{"--ack", "--claim", "--exec", "--state"}

func write(t testing.TB, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// runsHere reports whether a command does the same in this process. Those that it leaves out
// wait for signals, start the program again, or are stopped by a limit of the process.
func runsHere(args []string) bool {
	if len(args) == 0 || slices.ContainsFunc(args, func(a string) bool { return a == "--help" || a == "-h" || strings.HasPrefix(a, "--no-such-") }) {
		return true
	}
	switch args[0] {
	case "__complete", "asyncapi", "audit", "backup", "check", "client", "compact", "completion", "console", "docs", "errors", "help", "key", "man", "mecha", "message", "openapi", "prune",
		"readyz", "restore", "search", "sign", "stats", "version", "why":
		return !slices.Contains(args, "tail")
	}
	return false
}

// present returns those of some commands that are there: the others are of rings that are taken off.
func present(commands ...string) []string {
	of := map[string]string{"audit": "inspect", "check": "check", "compact": "compact", "message": "inspect", "stats": "inspect", "why": "inspect"}
	return slices.DeleteFunc(commands, func(c string) bool {
		word, _, _ := strings.Cut(c, " ")
		return of[word] != "" && !docs.Has(of[word])
	})
}

func mustRelay(t testing.TB, args ...string) string {
	t.Helper()
	r := runRelay(t, args...)
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

func parse[T any](t testing.TB, body []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return v
}

// allAtOnce runs f for all at the same time, and ends the test if one of them has failed.
func allAtOnce[T any](t *testing.T, all []T, f func(T)) {
	t.Helper()
	var running sync.WaitGroup
	for _, one := range all {
		running.Go(func() { f(one) })
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// eventually asks again until it is so, or the time is over.
func eventually(t testing.TB, within time.Duration, what string, so func() bool) {
	t.Helper()
	began := time.Now()
	for end := began.Add(within); !so(); time.Sleep(untilNextLook(time.Since(began))) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// untilNextLook returns how long to wait before one looks again: the longer the wait so far, the longer.
func untilNextLook(waited time.Duration) time.Duration {
	return min(max(waited/10, 5*time.Millisecond), 100*time.Millisecond)
}

// tempDB names a database in a directory of its own, which is in memory in the usual form of the
// tests (see scratch.Dir). A process that is killed leaves the same there as on a disk.
func tempDB(t testing.TB) string { return filepath.Join(scratch.Dir(t), "relay.db") }

// notShort skips what takes minutes in the race detector and has little for it: kills,
// disks that fail, measurements, one process after the other with hardly a goroutine.
func notShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short")
	}
}

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
