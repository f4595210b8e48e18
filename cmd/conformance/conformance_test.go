package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/cmd"
	"relay/cmd/conformance"
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
		flag.Set("test.parallel", "12") // they wait most of the time
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

// judge runs cases with an agent that is wrong in one way.
func judge(t *testing.T, wrong, role string, timeout time.Duration, only ...string) []conformance.Result {
	t.Helper()
	results, err := conformance.Judge(t.Context(), conformance.Config{Program: []string{self, "agent", wrong}, Role: role, Only: only,
		Timeout: timeout, Relay: self, Schema: mustSchema(t), Progress: func(int, int) {}})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

const patience = 2 * time.Minute // for what a good agent does, on the busiest machine

// A good agent passes every case, whether it listens on sockets or polls; and in every
// case that spoils something, something was spoiled.
func TestAGoodClientPasses(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"sockets", "polls"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			results := judge(t, way, "", patience)
			if len(results) != len(conformance.Cases()) {
				t.Errorf("%d results of %d cases", len(results), len(conformance.Cases()))
			}
			for i, r := range results {
				if !r.Passed || r.Must == "" || r.Name != conformance.Cases()[i].Name {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// Each of these agents is wrong in one way, and fails the case that is there for it. The
// text is in the reason.
var wrongAgents = []struct{ wrong, role, fails, why string }{
	{"leaks", "asker", "plain", "stderr of the asker has the key"},
	{"tells", "worker", "plain", "stderr of the worker has a payload"},
	{"no-reply", "worker", "plain", "without in_reply_to"},
	{"echo", "worker", "plain", "another payload"},
	{"no-ack", "worker", "plain", "not acknowledged: question"},
	{"received", "worker", "plain", "not acknowledged: question"},
	{"ack-first", "worker", "plain", "acknowledged before it was answered"},
	{"unsigned", "asker", "signatures", "ended with exit code 1"},
	{"no-key", "asker", "lost-answer", "sent 3 times: question 1, 2"},
	{"new-key", "asker", "lost-answer", "sent 2 times: question 1, 2"},
	{"no-key", "worker", "lost-answer", "answered 3 times: question 1, 2"},
	{"gives-up", "asker", "lost-answer", "not sent: question 2, 3"},
	{"one-ack", "worker", "lost-ack", "not acknowledged: question"},
	{"impatient", "asker", "retry-after", "came again after 0.1"},
	{"impatient", "worker", "retry-after", "came again after 0.1"},
	{"same-nonce", "asker", "retry-after", "has the nonce of an earlier request"},
	{"gives-up", "worker", "restart", "the worker"},
	{"gives-up", "asker", "restart", "ended with exit code 1"},
	{"misses", "worker", "cut", "not acknowledged: question"},
	{"twice", "worker", "duplicates", "times: question"},
	{"hasty", "asker", "slow", "the asker"},
	{"takes-any", "asker", "order", "printed before the worker had answered"},
	{"ack-first", "worker", "killed", "the worker has not answered all questions"},
	{"stubborn", "asker", "refused", "did not end by itself"},
	{"content", "asker", "refused", "ended with exit code 0, not 1"},
	{"stubborn", "asker", "revoked-asker", "did not end by itself"},
	{"content", "asker", "revoked-asker", "ended with exit code 0, not 1"},
	{"stubborn", "worker", "revoked-worker", "did not end by itself"},
	{"content", "worker", "revoked-worker", "ended with exit code 0, not 1"},
}

func TestAWrongClientFails(t *testing.T) {
	t.Parallel()
	failed := map[string]bool{}
	for _, w := range wrongAgents {
		failed[w.fails] = true
		t.Run(w.wrong+" "+w.role+" "+w.fails, func(t *testing.T) {
			t.Parallel()
			r := judge(t, w.wrong, w.role, wrongTime, w.fails)
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

// wrongTime is how long a wrong agent is waited for that never gets there.
const wrongTime = 15 * time.Second
