package bench

import (
	"errors"
	"slices"
	"testing"
	"time"

	"relay/cmd/bench/proc"
)

func metPhase(each time.Duration, n, failed int, others float64) *phase {
	p := &probed{failed: failed}
	for range n {
		p.latency.Record(each)
	}
	if failed > 0 {
		p.problem = errors.New("503 overloaded")
	}
	return &phase{probes: map[string]*probed{"read": p}, cpu: proc.Spent{Known: true, Others: others}, took: time.Second}
}

func TestARowIsFairIfNothingFailedAndTheP99IsNear(t *testing.T) {
	for _, c := range []struct {
		name     string
		attacked *phase
		ratio    float64
		fair     bool
	}{
		{"as quick as beside the control load", metPhase(4*time.Millisecond, 200, 0, 0), 1, true},
		{"almost three times as long", metPhase(11600*time.Microsecond, 200, 0, 0), 2.9, true},
		{"four times as long", metPhase(16*time.Millisecond, 200, 0, 0), 4, false},
		{"one failed", metPhase(4*time.Millisecond, 200, 1, 0), 1, false},
		{"none succeeded", metPhase(0, 0, 1, 0), 0, false},
	} {
		rows := fairRows(attack{name: "sends", probes: []string{"read"}}, []*contest{{alone: metPhase(time.Millisecond, 200, 0, 0), control: metPhase(4*time.Millisecond, 200, 0, 0), attacked: c.attacked}})
		if len(rows) != 1 || !near(rows[0].Ratio, c.ratio) || rows[0].Withstood() != c.fair {
			t.Errorf("%s: %+v", c.name, rows)
		}
	}
}

func TestAFairnessThatCannotBeTrustedSaysWhy(t *testing.T) {
	quiet := func() *phase { return metPhase(time.Millisecond, 200, 0, 0) }
	refused := quiet()
	refused.tally.Refused = 2
	restless := quiet()
	restless.restless = true
	for _, c := range []struct {
		contest
		want []string
	}{
		{contest{quiet(), quiet(), quiet()}, nil},
		{contest{quiet(), metPhase(time.Millisecond, 200, 0, .06), quiet()}, []string{"others took 6 % of the CPU"}},
		{contest{quiet(), quiet(), refused}, []string{"the control load was refused or cut off 2 times"}},
		{contest{restless, quiet(), quiet()}, []string{"1 of the phases began while the relay was still busy with the one before"}},
		{contest{quiet(), metPhase(time.Second, 2, 0, 0), quiet()}, []string{"only 2 operations"}},
		{contest{metPhase(time.Millisecond, 200, 1, 0), quiet(), quiet()}, []string{"1 failures without the attack, the first: 503 overloaded"}},
	} {
		rows := fairRows(attack{probes: []string{"read"}}, []*contest{&c.contest})
		if len(rows) != 1 || !slices.Equal(rows[0].Doubts, c.want) {
			t.Errorf("%q, want %q", rows[0].Doubts, c.want)
		}
	}
}
