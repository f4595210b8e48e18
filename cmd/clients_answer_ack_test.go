package cmd_test

import (
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// ask returns the answer even if the relay cannot be told of the ack. The client continues sending the ack
// after ask has returned, and while it is being closed, so that no other process handles the answer.
func TestClientsGiveTheAnswerBeforeItsAck(t *testing.T) {
	notQuick(t)
	t.Parallel()
	const js = prelude + `
say((await relay.ask("bob^talk", {})).id);
await relay.close();`
	for name, command := range map[string]func(t *testing.T) (*exec.Cmd, []string){
		"JavaScript": func(t *testing.T) (*exec.Cmd, []string) {
			s := mustScript(t)
			return s.program(s.write("ask.mjs", js)), nil
		},
		"Python":      askAndGoOn("async"),
		"sync Python": askAndGoOn("sync"),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "sync Python" {
				notQuick(t)
			}
			t.Parallel()
			c, env := command(t)
			p := newPair(t)
			var passes atomic.Bool
			isAck := func(r *http.Request) bool { return !passes.Load() && strings.HasSuffix(r.URL.Path, "/ack") }
			f := newTroubled(t, p.server, isAck, always(says(""))...)
			asker := launch(t, c, append(p.aliceEnv(f.url), env...))
			var question []record
			eventually(t, patience, "the question is there", func() bool {
				question = p.history(p.bob, "direction=in")
				return len(question) == 1
			})
			answer := p.answer(question[0].MessageID, `{}`)
			asker.await(asker.stdout, answer)
			if status := p.record(p.alice, answer).status(); status != "" {
				t.Errorf("the answer is acknowledged as %s", status)
			}
			passes.Store(true)
			if code := asker.wait(); code != 0 || pythonComplains.MatchString(asker.stderr.String()) {
				t.Errorf("the asker ends with %d:\n%s", code, asker.stderr)
			}
			if status := p.record(p.alice, answer).status(); status != "completed" {
				t.Errorf("the answer is acknowledged as %q after the end of the asker:\n%s", status, asker.stderr)
			}
		})
	}
}

func askAndGoOn(how string) func(t *testing.T) (*exec.Cmd, []string) {
	return func(t *testing.T) (*exec.Cmd, []string) {
		p := newPython(t)
		return p.command("ask_and_go_on.py", how, "bob^talk"), []string{"PYTHONPATH=" + p.dir}
	}
}
