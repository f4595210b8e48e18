// Package conformance judges programs by what they do. Judge runs a client program
// against a relay that misbehaves on purpose, and reads in its database what became of
// the messages. JudgeServer asks a server, and compares what it does with the interface
// document.
//
// cases.go has what a client must do, checks_interface.go and checks_beyond.go what a server
// must. Each case and check has a client or server in the tests that is wrong, and fails it.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"relay/db/relay"
)

// Config says which client program is judged, and by what.
type Config struct {
	Program  []string      // the program and its first arguments; worker or asker N follow them
	Role     string        // Asker or Worker: the program can do only that. "": both
	Only     []string      // the names of cases; nil: all
	Timeout  time.Duration // for each case
	AtOnce   int           // cases that run at the same time; 0: 4, or as many as there are processors if that is more
	Delay    time.Duration // of each answer in the case slow; 0: 3 s
	Limit    int           // questions in a case; 0: as many as the case has
	Relay    string        // the path of the program relay
	Schema   string        // makes the database
	By       relay.Actor   // for the audit log of that database
	Progress func(ended, all int)
}

// The two roles of a program.
const (
	Asker  = "asker"
	Worker = "worker"
)

// Result is what a case or a check showed.
type Result struct {
	Name    string   `json:"name"`
	Section string   `json:"section,omitempty"` // of a check: where the rule stands
	Beyond  bool     `json:"beyond,omitempty"`  // of a check: the interface document does not ask for it
	Passed  bool     `json:"passed"`
	Skipped string   `json:"skipped,omitempty"` // why it could not be judged; then it has not passed
	Why     []string `json:"why,omitempty"`     // why it failed
	Must    string   `json:"must"`              // what the author must see to
	Faults  int      `json:"faults,omitempty"`  // of a case: how often something went wrong for the program
	Seconds float64  `json:"seconds"`
}

// Failed reports whether the result speaks against what was judged.
func (r *Result) Failed() bool { return !r.Passed && !r.Beyond && r.Skipped == "" }

// CheckClient runs the cases, several at once, and returns a result for each, in the order of Cases. The error
// means that the kit itself failed, or is ctx's; a program that fails is not an error. All processes and files
// that it made are gone when it returns.
func CheckClient(ctx context.Context, c Config) ([]Result, error) {
	if _, err := exec.LookPath(c.Program[0]); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "relay-conformance-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	chosen := chosenCases(c)
	results, errs := make([]Result, len(chosen)), make([]error, len(chosen))
	atOnce := c.AtOnce
	if atOnce == 0 {
		atOnce = max(4, runtime.NumCPU())
	}
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	var mu sync.Mutex
	ended := 0
	for i, one := range chosen {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			results[i], errs[i] = checkCase(ctx, &c, one, fmt.Sprintf("%s/%d", dir, i))
			mu.Lock()
			defer mu.Unlock()
			ended++
			c.Progress(ended, len(chosen))
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return results, ctx.Err()
}

func chosenCases(c Config) (chosen []*Case) {
	for i := range cases {
		one := &cases[i]
		named := len(c.Only) == 0 || slices.Contains(c.Only, one.Name)
		can := c.Role == "" || one.Role == "" || c.Role == one.Role
		if named && can {
			chosen = append(chosen, one)
		}
	}
	return chosen
}

// Cases returns all cases, in the order of the table.
func Cases() []Case { return slices.Clone(cases) }
