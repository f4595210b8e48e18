package ws_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"relay/db/scratch"
	"relay/http/apitest"
)

// TestMain runs the tests both ways where there is a poller: all of them with it, then those of
// reading without it, in the long form all. With -short, benchmarks and fuzz targets run with it
// alone. The tests in bubbles never have it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // processors are scarcer than memory
	flag.Parse()
	set := func(name string) bool { f := flag.Lookup(name); return f != nil && f.Value.String() != "" }
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["test.parallel"] && testing.Short() {
		flag.Set("test.parallel", "16") // with the race detector they need the processors
	} else if !given["test.parallel"] {
		flag.Set("test.parallel", "32") // they wait for the network and the disk
	}
	noPoller = noPoller || os.Getenv(withoutPoller) != ""
	serves := os.Getenv(echoAddr) != "" // until the first interrupt
	once := noPoller || serves || testing.Short() || set("test.bench") || set("test.fuzz") || set("test.list")
	code := m.Run()
	if !once && code == 0 {
		noPoller = true
		if !scratch.LongAll() && !set("test.run") {
			flag.Set("test.run", testsOfReading())
		}
		fmt.Println("and with a goroutine to read each socket:")
		code = m.Run()
	}
	if testing.Verbose() {
		fmt.Print(apitest.Summary())
	}
	os.Exit(code)
}

// withoutPoller is a variable of the environment: with it, the tests run without the poller alone.
const withoutPoller = "RELAY_WS_TEST_WITHOUT_POLLER"

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
