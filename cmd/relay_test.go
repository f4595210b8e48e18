// Package cmd_test runs the program as people and their agents do: as a
// process, over the network. Nothing here reaches into the program, and
// requests are signed by the interface's own words, not by the relay's code.
// Short commands run in this process, by the function that main calls (run), and so do relays
// that no test kills (startServer); the long form starts processes for these too.
package cmd_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/cmd"
	"relay/db/scratch"
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

// beRelay does what main does. The schema is next to the program.
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
	files, err := filepath.Glob(filepath.Join(filepath.Dir(binary), "*.sql")) // there is one next to linkProgram's alone
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
	scratch.Eventually(t, within, what, so)
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
