package ws_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"relay/db/scratch"
	"relay/http/apitest"
)

// TestMain runs the tests both ways where there is a poller, at once: all of them with it,
// and without it those of reading, in the long form all. With -short, benchmarks and fuzz
// targets run with it alone.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // processors are scarcer than memory
	flag.Parse()
	set := func(name string) bool { f := flag.Lookup(name); return f != nil && f.Value.String() != "" }
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["test.parallel"] && testing.Short() {
		flag.Set("test.parallel", "16") // with the race detector they need the processors
	} else if !given["test.parallel"] {
		flag.Set("test.parallel", "32") // they wait for timers and the disk
	}
	if os.Getenv(withoutPoller) != "" {
		noPoller = true
	}
	serves := os.Getenv(echoAddr) != "" // one address, one process: a second one would take it, or serve after the first
	if noPoller || serves || testing.Short() || set("test.bench") || set("test.fuzz") || set("test.list") {
		code := m.Run()
		sayWhatWasHeld()
		os.Exit(code)
	}
	again := runWithoutPoller()
	code := m.Run()
	sayWhatWasHeld()
	os.Exit(max(code, again()))
}

// sayWhatWasHeld prints how much was held against the documents of the API.
func sayWhatWasHeld() {
	if testing.Verbose() {
		fmt.Print(apitest.Summary())
	}
}

const withoutPoller = "RELAY_WS_TEST_WITHOUT_POLLER"

// runWithoutPoller starts this test program once more, with a goroutine to read
// each socket. The function that it returns waits for the end, prints the output, and
// returns the exit code.
func runWithoutPoller() (wait func() int) {
	var args []string
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "test.testlogfile", "test.coverprofile", "test.cpuprofile", "test.memprofile", "test.blockprofile", "test.mutexprofile", "test.trace":
			return // a file that both would write
		}
		args = append(args, "-"+f.Name+"="+f.Value.String())
	})
	if !scratch.LongAll() && flag.Lookup("test.run").Value.String() == "" {
		args = append(args, "-test.run="+testsOfReading())
	}
	var said bytes.Buffer
	child := exec.Command(os.Args[0], args...)
	child.Env = append(os.Environ(), withoutPoller+"=1")
	child.Stdout, child.Stderr = &said, &said
	err := child.Start()
	return func() int {
		if err == nil {
			err = child.Wait()
		}
		fmt.Printf("and with a goroutine to read each socket:\n%s", &said)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	}
}

// testsOfReading returns a regular expression for tests whose subject is how a socket is read:
// frames and their limits. They are all tests of some files. The long form runs all
// tests both ways.
func testsOfReading() string {
	var names []string
	for _, subject := range []string{"ack", "echo", "frame", "strict"} {
		text, err := os.ReadFile(subject + "_test.go")
		if err != nil {
			panic(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
