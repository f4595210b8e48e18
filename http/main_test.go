package http_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay/http/apitest"
)

// patience ends a test that would otherwise never end. It does not measure speed.
const patience = 2 * time.Minute

// atOnce is how many tests run at the same time. They wait for timers and the disk; with -short, as
// the race detector has them, more for the processors.
func atOnce() string {
	if testing.Short() {
		return "16"
	}
	return "24"
}

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // processors are scarcer than memory
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", atOnce())
	}
	code := m.Run()
	if testing.Verbose() {
		fmt.Print(apitest.Summary())
	}
	os.Exit(code)
}

// label marks this goroutine, and all that are started from it from now on:
// other tests have theirs at the same time.
func label(t testing.TB) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("test", t.Name())))
}

// goroutines counts the goroutines that were labelled for a test.
func goroutines(t testing.TB) (n int) {
	t.Helper()
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
		t.Fatal(err)
	}
	_, all, _ := strings.Cut(stacks.String(), "\n")    // the first line is their number
	for stack := range strings.SplitSeq(all, "\n\n") { // of so many goroutines that are alike
		if strings.Contains(stack, strconv.Quote(t.Name())) {
			alike, _, _ := strings.Cut(stack, " ")
			k, err := strconv.Atoi(alike)
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
	}
	return n
}
