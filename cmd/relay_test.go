// Package cmd_test runs the program as people and their agents do: as a
// process, over the network. Nothing here reaches into the program, and
// requests are signed by the interface's own words, not by the relay's code.
package cmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
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

// runRelay runs the program; mustRelay expects it to succeed and gives its stdout.
func runRelay(t testing.TB, args ...string) result {
	t.Helper()
	return run(t, args, nil, "")
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

// eventually asks again until it is so, or the time is over.
func eventually(t testing.TB, within time.Duration, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// tempDB names a database in a directory of its own.
func tempDB(t testing.TB) string { return filepath.Join(t.TempDir(), "relay.db") }

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
