package cmd_test

import (
	"os/exec"
	"strings"
	"testing"
)

// ownTemp makes an environment with a temporary directory of its own.
func ownTemp(t *testing.T) (dir string, env []string) {
	dir = t.TempDir()
	return dir, []string{"TMPDIR=" + dir, "TMP=" + dir, "TEMP=" + dir}
}

func TestTheDemoTellsItsStoryAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir, env := ownTemp(t)
	r := run(t, []string{"demo"}, env, "").wantCode(t, 0)
	for _, part := range []string{"1. A relay starts", "planner^acme", "flights receives:", "receipt says: acknowledged, completed",
		"stopped and started again", "found flights^acme", "8. The history", "That was all"} {
		if !strings.Contains(r.out, part) {
			t.Errorf("the story lacks %q:\n%s", part, r.out)
		}
	}
	if r.err != "" {
		t.Errorf("stderr: %s", r.err)
	}
	wantFiles(t, dir)
}

func TestTheDemoForMachines(t *testing.T) {
	t.Parallel()
	dir, env := ownTemp(t)
	r := run(t, []string{"demo", "--json"}, env, "").wantCode(t, 0)
	v := parse[struct {
		OK       bool
		Messages int
	}](t, []byte(r.out))
	if !v.OK || v.Messages == 0 {
		t.Errorf("%s", r.out)
	}
	wantFiles(t, dir)
}

func TestTheDemoDependsOnNoSettings(t *testing.T) {
	_, env := ownTemp(t)
	env = append(env, "RELAY_ADDR=127.0.0.1:1", "RELAY_DB=/nowhere/relay.db", "RELAY_KEY=x", "RELAY_URL=http://127.0.0.1:1", "REQUIRE_MESSAGE_SIGNATURE=0")
	run(t, []string{"demo"}, env, "").wantCode(t, 0)
}

func TestAnInterruptedDemoLeavesNothingBehind(t *testing.T) {
	notOnWindows(t, "there is no SIGTERM")
	dir, env := ownTemp(t)
	s := launch(t, exec.Command(binary, "demo"), env)
	s.await(s.stdout, `1\.`)
	s.terminate() // it may have been faster
	wantFiles(t, dir)
}

func TestADemoThatNobodyReadsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	tool(t, "bash", "head")
	dir, env := ownTemp(t)
	for range rounds(t, 1, 9) {
		finish(t, exec.Command("bash", "-c", `"$0" demo | head -n 2`, binary), env, "").wantCode(t, 0)
		wantFiles(t, dir)
	}
}

func TestWrongUsageOfTheDemo(t *testing.T) { wantWrongUsage(t, "demo now", "relay demo") }
