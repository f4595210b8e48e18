package ws_test

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/scratch"
)

// label marks this goroutine, and all that are started from it from now on, as
// the goroutines of one relay: other tests have relays at the same time.
func label(t testing.TB) string {
	name := fmt.Sprintf("%s %d", t.Name(), relays.Add(1))
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("relay", name)))
	return name
}

var relays atomic.Int64

// goroutinesLeft counts a relay's goroutines of package ws, but for those that
// wait for the others in Close. One that is just ending gets a moment to do so.
func goroutinesLeft(relay string) (n int) {
	began := time.Now()
	for end := began.Add(30 * time.Second); time.Now().Before(end); time.Sleep(scratch.NextLook(time.Since(began))) {
		if n = goroutinesOfHub(relay); n == 0 {
			return 0
		}
	}
	return n
}

func goroutinesOfHub(relay string) (n int) {
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
		panic(err)
	}
	_, all, _ := strings.Cut(stacks.String(), "\n")    // the first line is their number
	for stack := range strings.SplitSeq(all, "\n\n") { // of so many goroutines that are alike
		if strings.Contains(stack, strconv.Quote(relay)) && strings.Contains(stack, "relay/ws.(*") && !strings.Contains(stack, "relay/ws.(*Hub).Close") {
			alike, _, _ := strings.Cut(stack, " ")
			k, err := strconv.Atoi(alike)
			if err != nil {
				panic(stack)
			}
			n += k
		}
	}
	return n
}

// goroutinesIdle is how many the hub has when it has no connections: the ticker, and the poller.
func goroutinesIdle() int {
	if noPoller {
		return 1
	}
	return 2
}
