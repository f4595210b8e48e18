package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/cmd"
	"relay/cmd/conformance"
	"relay/db/scratch"
)

const schemaEnv = "CONFORMANCE_TEST_SCHEMA"

var self string

// TestMain lets this test binary be the relay, and the agent that is judged.
func TestMain(m *testing.M) {
	if path := os.Getenv(schemaEnv); path != "" {
		os.Exit(beProgram(path))
	}
	schema, err := filepath.Abs("../../schema.sql")
	if err == nil {
		self, err = os.Executable()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(schemaEnv, schema)
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "16") // they wait most of the time
	}
	if root := scratch.Root(); root != "" && !scratch.IsLong() {
		os.Setenv("TMPDIR", root) // for the relays of the kit, too: a sync costs nothing there
	}
	if os.Getenv("GOGC") == "" && !scratch.IsLong() {
		os.Setenv("GOGC", "400") // for the relays and agents: processors are scarcer than memory
	}
	os.Exit(m.Run())
}

func beProgram(path string) int {
	if len(os.Args) > 3 && os.Args[1] == "agent" {
		return beAgent(os.Args[2], os.Args[3:])
	}
	schema, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.Main(string(schema), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

func mustSchema(t *testing.T) string {
	t.Helper()
	schema, err := os.ReadFile(os.Getenv(schemaEnv))
	if err != nil {
		t.Fatal(err)
	}
	return string(schema)
}

// judge runs cases with an agent that is wrong in one way, with at most so many questions each; 0:
// as many as the cases have.
func judge(t *testing.T, wrong, role string, timeout time.Duration, most int, only ...string) []conformance.Result {
	t.Helper()
	results, err := conformance.CheckClient(t.Context(), conformance.Config{Program: []string{self, "agent", wrong}, Role: role, Only: only,
		Timeout: timeout, AtOnce: 8, Delay: delay(t, wrong), Limit: most, Relay: self, Schema: mustSchema(t), Progress: func(int, int) {}})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// delay is how long the case slow waits for an agent; 0: the usual one.
func delay(t testing.TB, wrong string) time.Duration {
	if scratch.Long(t) || wrong == "hasty" {
		return 0
	}
	return time.Second
}

// The examples of the clients pass: in the long form every case, else one of them the case in which both
// messages and acknowledgements are sent again, and another one that in which messages come twice.
func TestTheClientsConform(t *testing.T) {
	t.Parallel()
	notOnWindows(t)
	for _, c := range []struct {
		language, file, usual string
		command               []string
	}{
		{"go", "../../http/client/example/main.go", "", nil},
		{"python", "../clients/source/example.py", "lost-answer", []string{"python3", "-B"}},
		{"javascript", "../clients/source/example.mjs", "duplicates", []string{"node"}},
	} {
		t.Run(c.language, func(t *testing.T) {
			t.Parallel()
			only := []string{c.usual}
			if scratch.Long(t) {
				only = nil
			} else if c.usual == "" {
				t.Skip("a good client is written in Go; -long judges the example, too")
			}
			if c.language == "python" {
				c.command[0] = scratch.Python(t)
			}
			if _, err := os.Stat(c.file); err != nil {
				t.Fatal(err)
			}
			command := append(c.command, c.file)
			if c.command == nil {
				command = []string{filepath.Join(t.TempDir(), "example")}
				if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", command[0], c.file).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			} else if _, err := exec.LookPath(command[0]); err != nil {
				t.Skip(err)
			}
			results, err := conformance.CheckClient(t.Context(), conformance.Config{Program: command, Only: only, Timeout: patience, Relay: self, Schema: mustSchema(t), Progress: func(int, int) {}})
			if err != nil || len(results) == 0 {
				t.Fatal(results, err)
			}
			for _, r := range results {
				if !r.Passed {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

const patience = 2 * time.Minute // for what a good agent does, on the busiest machine

// patient are the cases in which an agent waits for seconds at each question. The usual form
// asks one, of an asker and of a worker at the same time.
var patient = []string{"retry-after", "slow"}

// A good agent passes every case, whether it listens on sockets or polls; and in every
// case that spoils something, something was spoiled. The usual form has every second case, and one worker that polls.
func TestAGoodClientPasses(t *testing.T) {
	t.Parallel()
	notOnWindows(t)
	var all, quick []string
	for i, c := range conformance.Cases() {
		all = append(all, c.Name)
		if i%2 == 1 && !slices.Contains(patient, c.Name) {
			quick = append(quick, c.Name)
		}
	}
	type way struct {
		way, role string
		most      int
		want      []string
	}
	ways := []way{
		{"sockets", "", 0, quick}, {"sockets", "asker", 1, patient[:1]}, {"sockets", "worker", 1, patient[:1]},
		{"polls", "", 0, []string{"lost-ack"}},
	}
	if scratch.Long(t) {
		ways = []way{{"sockets", "", 0, all}, {"polls", "", 0, all}}
	}
	for _, w := range ways {
		t.Run(strings.TrimSpace(w.way+" "+w.role), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && w.way == "polls" {
				t.Skip("-short: the sockets have more goroutines")
			}
			results := judge(t, w.way, w.role, patience, w.most, w.want...)
			if len(results) != len(w.want) {
				t.Errorf("%d results of %d cases", len(results), len(w.want))
			}
			for i, r := range results {
				if !r.Passed || r.Must == "" || r.Name != w.want[i] {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// Each of these agents is wrong in one way, and fails the case that is there for it. The
// text is in the reason.
// waits says that the agent never gets there, and that the case ends by its time.
var wrongAgents = []struct {
	wrong, role, fails, why string
	waits                   bool
}{
	{"leaks", "asker", "plain", "stderr of the asker has the key", false},
	{"tells", "worker", "plain", "stderr of the worker has a payload", false},
	{"no-reply", "worker", "plain", "without in_reply_to", true},
	{"echo", "worker", "plain", "another payload", false},
	{"no-ack", "worker", "plain", "not acknowledged: question", true},
	{"received", "worker", "plain", "not acknowledged: question", true},
	{"ack-first", "worker", "plain", "acknowledged before it was answered", false},
	{"unsigned", "asker", "signatures", "ended with exit code 1", false},
	{"no-key", "asker", "lost-answer", "sent 3 times: question 1, 2", false},
	{"new-key", "asker", "lost-answer", "sent 2 times: question 1, 2", false},
	{"no-key", "worker", "lost-answer", "answered 3 times: question 1, 2", false},
	{"gives-up", "asker", "lost-answer", "not sent: question 2, 3", false},
	{"one-ack", "worker", "lost-ack", "not acknowledged: question", true},
	{"impatient", "asker", "retry-after", "was repeated after 0.", false},
	{"impatient", "worker", "retry-after", "was repeated after 0.", false},
	{"same-nonce", "asker", "retry-after", "has the nonce of an earlier request", false},
	{"gives-up", "worker", "restart", "the worker", true},
	{"gives-up", "asker", "restart", "ended with exit code 1", false},
	{"misses", "worker", "cut", "not acknowledged: question", true},
	{"twice", "worker", "duplicates", "times: question", false},
	{"hasty", "asker", "slow", "the asker did not end", true},
	{"takes-any", "asker", "order", "printed before the worker had answered", false},
	{"ack-first", "worker", "killed", "the worker has not answered all questions", true},
	{"stubborn", "asker", "refused", "did not exit on its own", true},
	{"content", "asker", "refused", "ended with exit code 0, not 1", false},
	{"stubborn", "asker", "revoked-asker", "did not exit on its own", true},
	{"content", "asker", "revoked-asker", "ended with exit code 0, not 1", false},
	{"stubborn", "worker", "revoked-worker", "did not exit on its own", true},
	{"content", "worker", "revoked-worker", "ended with exit code 0, not 1", false},
}

func TestAWrongClientFails(t *testing.T) {
	t.Parallel()
	notOnWindows(t)
	failed := map[string]bool{}
	for i, w := range wrongAgents {
		failed[w.fails] = true
		t.Run(w.wrong+" "+w.role+" "+w.fails, func(t *testing.T) {
			t.Parallel()
			if !scratch.Long(t) && i%10 != 0 {
				t.Skip("takes long; -long judges all wrong agents")
			}
			timeout := patience
			if w.waits && scratch.Long(t) {
				timeout = 15 * time.Second
			} else if w.waits {
				timeout = 8 * time.Second
			}
			r := judge(t, w.wrong, w.role, timeout, 0, w.fails)
			if len(r) != 1 || r[0].Passed || !strings.Contains(strings.Join(r[0].Why, "\n"), w.why) {
				t.Errorf("%+v, want a failure with %q", r, w.why)
			}
		})
	}
	for _, c := range conformance.Cases() {
		if !failed[c.Name] {
			t.Errorf("no wrong agent fails %s", c.Name)
		}
	}
}

func notOnWindows(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("not on Windows: there is no SIGTERM")
	}
}
