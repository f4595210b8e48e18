package cmd_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/cmd"
	"relay/db/scratch"
	"relay/http/docs"
)

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

// InFlags is flagsFor for the client's commands that end on their own. It returns false for
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
