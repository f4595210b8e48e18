// Package relaytest starts whole relays in the process of a test: real sockets, a real file,
// the flags of relay serve. A relay so started cannot be killed, and has no signals, exit code
// or environment of its own: what a test asks of these needs a process. Only tests import it.
package relaytest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/db"
	"relay/db/scratch"
)

// A Relay answers requests until Stop, or the end of its test.
type Relay struct {
	URL  string
	DB   *db.DB
	stop func() error
}

// Start starts a relay with flags of relay serve. Without --addr and --db it has a free port, and a
// file of its own. It logs to the test's log.
func Start(t testing.TB, flags ...string) *Relay {
	t.Helper()
	return StartWith(t, t.Output(), flags...)
}

// StartWith is Start with a log of its own, which is text unless a flag says otherwise.
func StartWith(t testing.TB, log io.Writer, flags ...string) *Relay {
	t.Helper()
	own := []string{"--addr=127.0.0.1:0", "--log-format=text", "--db=" + filepath.Join(scratch.Dir(t), "relay.db")}
	a := &cli.App{Schema: schema(), Stdout: io.Discard, Stderr: log, Command: "serve"}
	in, err := serve.Start(t.Context(), a, nil, append(own, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{in.URL(), in.DB(), sync.OnceValue(in.Stop)}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Stop stops the relay in order, as SIGTERM does, and returns the error of that.
func (r *Relay) Stop() error { return r.stop() }

// schema returns schema.sql, which is in the root of the module.
var schema = sync.OnceValue(func() string {
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		text, err := os.ReadFile(filepath.Join(dir, "schema.sql"))
		if err == nil {
			return string(text)
		}
		if _, found := os.Stat(filepath.Join(dir, "go.mod")); found == nil || !errors.Is(err, fs.ErrNotExist) {
			panic(err)
		}
	}
})
