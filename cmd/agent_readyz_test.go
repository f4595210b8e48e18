package cmd_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"relay/db/scratch"
)

// relay readyz waits until a server is ready, and names the parts that are not ready yet.
func TestReadyz(t *testing.T) {
	t.Parallel()
	runRelay(t, "readyz", "--url", "http://127.0.0.1:1").wantCode(t, 1, "127.0.0.1:1")
	runRelay(t, "readyz", "--url", "somewhere").wantCode(t, 2, "--url")
	dir, db := t.TempDir(), tempDB(t)
	addr := scratch.Addr(t)
	runRelay(t, "readyz", "--url", "http://"+addr, "--wait", "1ms").wantCode(t, 1, addr)
	waits := launchHere(t, []string{"readyz", "--url", "http://" + addr, "--wait", "3m"}, nil)
	s := launch(t, exec.Command(binary, "serve", "--addr", addr, "--db", db, "--min-free-disk", "9000000000000000000"), nil)
	if code := waits.wait(); code != 0 || !strings.Contains(waits.stdout.String(), "ready\n") || !strings.Contains(waits.stdout.String(), "disk: ") {
		t.Errorf("exit %d: %s%s", code, waits.stdout, waits.stderr)
	}
	r := runRelay(t, "readyz", "--url", "http://"+addr, "--json").wantCode(t, 0)
	if got := parse[map[string]any](t, []byte(r.out)); got["status"] != "ready" || got["accepting_messages"] != false {
		t.Errorf("%s", r.out)
	}
	s.terminate()
	// What listens never answers: the question takes no longer than --wait.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ask := []string{"readyz", "--url", "http://" + silent.Addr().String()}
	longer := func() bool { // than with --wait
		whole := launch(t, exec.Command(binary, ask...), nil)
		conn, err := silent.Accept() // it has asked
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		runRelay(t, append(ask, "--wait", "10ms")...).wantCode(t, 1, "the server at ", " does not answer")
		select {
		case <-whole.exited:
			return false
		default:
			return true
		}
	}
	held := false
	for range 3 { // a busy machine may hold one of them up
		held = held || longer()
	}
	if !held {
		t.Error("a question with --wait 10ms takes as long as one without")
	}
	// What answers is not a relay.
	if err := os.WriteFile(filepath.Join(dir, "readyz"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go http.Serve(l, http.FileServer(http.Dir(dir)))
	runRelay(t, "readyz", "--url", "http://"+l.Addr().String()).wantCode(t, 1, "not as a relay does")
}
