package cmd_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// example builds the program that shows the Go client at work.
func example(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "example"+filepath.Ext(programName))
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "relay/http/client/example").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// The example of the Go client asks and answers while the relay is
// killed and started again. Nothing is lost, and each question is answered once.
func TestTheGoClientsOutliveTheRelay(t *testing.T) {
	notQuickButForRaces(t)
	t.Parallel()
	notOnWindows(t, "there is no kill -9")
	p := newPairWithProcess(t, "--rate-limit", "0")
	f := newFront(t, p.server)
	program, n, kills := example(t), questions(t), rounds(t, 1, 8)
	worker := launch(t, exec.Command(program, "worker"), p.bobEnv(f.url))
	asker := launch(t, exec.Command(program, "asker", fmt.Sprint(n)), append(p.aliceEnv(f.url), "RELAY_TO=bob^talk"))
	for i := range kills {
		asker.await(asker.stdout, fmt.Sprintf(`(?m)^%d$`, n*(i+1)/(kills+1)))
		p.kill()
		p.server = startProcess(t, p.db, "--require-message-signature", "--rate-limit", "0")
		f.leadTo(p.server)
	}
	if code := asker.wait(); code != 0 {
		t.Fatalf("exit %d: %s", code, asker.stderr)
	}
	want := ""
	for i := range n {
		want += fmt.Sprintln(i + 1)
	}
	if asker.stdout.String() != want {
		t.Errorf("the asker printed %s", asker.stdout)
	}
	if code := worker.terminate(); code != 0 {
		t.Errorf("exit %d: %s", code, worker.stderr)
	}
	questions, answers := p.history(p.bob, "direction=in&state=acknowledged"), p.history(p.alice, "direction=in")
	if len(questions) != n || len(answers) != n {
		t.Errorf("%d questions are acknowledged, and there are %d answers; want %d", len(questions), len(answers), n)
	}
	for _, m := range answers {
		if m.State != "acknowledged" {
			t.Errorf("the answer %s is %s", m.MessageID, m.State)
		}
	}
}

// A program whose key is revoked ends, and says why.
func TestTheGoClientsEndWithTheirKey(t *testing.T) {
	notQuick(t)
	t.Parallel()
	p := newPair(t)
	program := example(t)
	worker := launch(t, exec.Command(program, "worker"), p.bobEnv(p.url))
	asker := launch(t, exec.Command(program, "asker", "1"), append(p.aliceEnv(p.url), "RELAY_TO=bob^talk"))
	if code := asker.wait(); code != 0 {
		t.Fatalf("exit %d: %s", code, asker.stderr)
	}
	mustRelay(t, "key", "revoke", p.bob.KeyID, "--db", p.db)
	mustRelay(t, "key", "revoke", p.alice.KeyID, "--db", p.db)
	if code := worker.wait(); code != 1 || !strings.Contains(worker.stderr.String(), "key_revoked") {
		t.Errorf("exit %d: %s", code, worker.stderr)
	}
	asker = launch(t, exec.Command(program, "asker", "1"), append(p.aliceEnv(p.url), "RELAY_TO=bob^talk"))
	if code := asker.wait(); code != 1 || !strings.Contains(asker.stderr.String(), "key_revoked") {
		t.Errorf("exit %d: %s", code, asker.stderr)
	}
}
