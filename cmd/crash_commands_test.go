package cmd_test

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// A server is killed while commands have it write. Each that has exited with 0 has done its work;
// the others say that nothing was done, or that this is unknown. The socket that the server has
// left is in nobody's way.
func TestCommandsBesideAServerThatIsKilled(t *testing.T) {
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^kill")[0]
	var mu sync.Mutex
	said := map[string]bool{}
	for round := range rounds(t, 1, 25) {
		s := startProcess(t, db)
		var commands sync.WaitGroup
		begun := make(chan struct{}, 100)
		for i := range 12 {
			commands.Go(func() {
				for n := range rounds(t, 1, 13) {
					address := fmt.Sprintf("m%d-%d-%d^kill", round, i, n)
					c := launch(t, exec.Command(binary, "key", "create", address, "--db", db), nil)
					code := c.wait()
					begun <- struct{}{}
					mu.Lock()
					said[address] = code == 0
					mu.Unlock()
					text := c.stderr.String()
					if code != 0 && !strings.Contains(text, "nothing was") && !strings.Contains(text, "unknown") {
						t.Errorf("exit %d: %s", code, text)
					}
				}
			})
		}
		for range 6 + round%4 {
			<-begun
		}
		s.kill()
		commands.Wait()
		mustRelay(t, "key", "create", fmt.Sprintf("alone%d^kill", round), "--db", db)
	}
	there := mustRelay(t, "mecha", "list", "--db", db, "--json")
	for address, done := range said {
		if done && !strings.Contains(there, `"`+address+`"`) {
			t.Errorf("%s is not there, though the command has ended with 0", address)
		}
	}
	s := startServer(t, db) // where the other has left its socket
	began := time.Now()
	mustRelay(t, "key", "create", "last^kill", "--db", db)
	if took := time.Since(began); took > patience/4 {
		t.Errorf("a command took %v", took)
	}
	s.send(a, "last^kill", `{}`)
	wantWhole(t, db)
}
