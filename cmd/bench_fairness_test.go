package cmd_test

import (
	"runtime"
	"slices"
	"testing"

	"relay/cmd/bench"
	"relay/db/scratch"
)

type fairness struct{ Fairness []bench.Fair }

// underAttack measures one attack in short phases.
func underAttack(t *testing.T, attack, duration string) []bench.Fair {
	t.Helper()
	dir := t.TempDir()
	r := parse[fairness](t, []byte(mustRelay(t, "bench", "--json", "--only", "fairness", "--attacks", attack, "--dir", dir,
		"--duration", duration, "--repeats", "1", "--messages", "12800", "--profiles", "1000")))
	wantFiles(t, dir)
	if len(r.Fairness) == 0 {
		t.Fatal("nothing was measured")
	}
	for _, f := range r.Fairness {
		if f.Begun == 0 {
			t.Errorf("%s was no attack: %+v", attack, f)
		}
	}
	return r.Fairness
}

// A key at its limits, in each known way, takes no answer from another key: a request
// that fails here failed because of its neighbour. relay bench measures how long the
// answers take.
func TestFairToANeighbourOfEveryAttacker(t *testing.T) {
	if !scratch.Long(t) {
		t.Skip("one attack runs in TestFairnessIsMeasured; -long runs all")
	}
	duration := "1s"
	if full() {
		duration = "2s"
	}
	for _, attack := range bench.Attacks() {
		t.Run(attack, func(t *testing.T) {
			if runtime.GOOS == "windows" && slices.Contains([]string{"half-frames", "unread"}, attack) {
				t.Skip("the limit of open files is not set there")
			}
			for _, f := range underAttack(t, attack, duration) {
				for when, met := range map[string]bench.Met{"alone": f.Alone, "beside a control load": f.Control, "attacked": f.Attacked} {
					if met.Failed > 0 || met.Operations == 0 {
						t.Errorf("%s, %s: %d of %d failed, the first with: %s", f.Bystander, when, met.Failed, met.Failed+met.Operations, met.Problem)
					}
				}
				t.Logf("%s: p99 %.1f ms alone, %.1f ms beside a control load, %.1f ms attacked", f.Bystander, f.Alone.P99/1000, f.Control.P99/1000, f.Attacked.P99/1000)
			}
		})
	}
}

func TestFairnessIsMeasured(t *testing.T) {
	t.Parallel()
	rows := underAttack(t, "sends", "40ms")
	var names []string
	for _, f := range rows {
		names = append(names, f.Bystander)
		if f.Attack != "sends" || f.Clients != 64 || f.Attacked.Operations < 1 || f.Attacked.P50 > f.Attacked.P99 || f.Ratio <= 0 || f.Attacked.Failed > 0 {
			t.Errorf("%+v", f)
		}
	}
	if !slices.Equal(names, []string{"read", "send", "ack"}) {
		t.Errorf("the bystander's rows are %q", names)
	}
}
