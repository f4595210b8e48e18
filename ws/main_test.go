package ws_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"testing"

	"relay/http/apitest"
)

// The short form of the tests has each check at least once; the long form
// repeats what meets chance, with the numbers that it was found with:
//
//	go test ./ws -long
var long = flag.Bool("long", false, "the long form of the tests: minutes instead of seconds")

// amount gives how often something is done, or how much there is of it.
func amount(usual, longer int) int {
	if *long {
		return longer
	}
	return usual
}

// TestMain runs the tests both ways where there is a poller, at once; with
// -short, benchmarks and fuzz targets with it alone.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // processors are scarcer than memory
	flag.Parse()
	set := func(name string) bool { f := flag.Lookup(name); return f != nil && f.Value.String() != "" }
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["test.parallel"] {
		flag.Set("test.parallel", "16") // parallel tests wait for timers and the disk
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
