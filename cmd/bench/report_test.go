package bench

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"relay/cmd/bench/proc"
)

// round is a round of a second in which every operation took as long.
func round(ops int, each time.Duration, others float64) *sample {
	s := &sample{took: time.Second, ops: ops, units: 2 * ops, cpu: proc.Spent{Known: true, Server: time.Duration(ops) * 30 * time.Microsecond, Others: others}}
	for range ops {
		s.latency.Record(each)
	}
	return s
}

func near(a, b float64) bool { return math.Abs(a-b) <= 0.01*math.Abs(b) }

func TestAFigureIsTheMedianOfItsRounds(t *testing.T) {
	r := loadRow("send", "durable", 8, "messages", []*sample{round(1000, time.Millisecond, 0), round(1100, 3*time.Millisecond, .01), round(900, 2*time.Millisecond, .02)})
	if r.PerSecond != 2000 || !near(r.P50, 2000) || !near(r.P999, 2000) || r.ServerCPU != 30 || r.Operations != 3000 || !near(r.Spread, 0.2) || *r.Others != .02 || len(r.Doubts) > 0 {
		t.Errorf("%+v", r)
	}
	two := loadRow("send", "durable", 8, "messages", []*sample{round(1000, time.Millisecond, 0), round(1100, time.Millisecond, 0)})
	if two.PerSecond != 2100 {
		t.Errorf("%+v", two)
	}
}

func TestAFigureThatCannotBeTrustedSaysWhy(t *testing.T) {
	busy, slow, few := round(1000, 1, .06), round(500, 1, 0), round(20, 1, 0)
	refused := round(1000, 1, 0)
	refused.failed, refused.problem = 3, errors.New("429 rate_limited")
	for _, c := range []struct {
		rounds []*sample
		want   []string
	}{
		{[]*sample{busy, round(1000, 1, 0)}, []string{"others took 6 % of the CPU"}},
		{[]*sample{slow, round(1000, 1, 0)}, []string{"the rounds differ by 67 %"}},
		{[]*sample{few, few}, []string{"only 40 operations"}},
		{[]*sample{refused}, []string{"3 requests were refused, the first with 429 rate_limited"}},
		{[]*sample{busy, slow}, []string{"others took 6 % of the CPU", "the rounds differ by 67 %"}},
	} {
		r := loadRow("send", "durable", 1, "messages", c.rounds)
		if !slices.Equal(r.Doubts, c.want) || r.Busy() != slices.Contains(c.rounds, busy) {
			t.Errorf("%q, not %q", r.Doubts, c.want)
		}
	}
	unknown := round(1000, 1, 0)
	unknown.cpu = proc.Spent{}
	if r := loadRow("send", "durable", 1, "messages", []*sample{unknown}); r.Others != nil || r.Busy() {
		t.Errorf("%+v", r)
	}
}

func TestARatioIsOfNeighbours(t *testing.T) {
	// The machine drifts: each pair is worth the same, though the rates are not.
	these := []*sample{round(100, 1, 0), round(200, 1, 0), round(400, 1, .5)}
	those := []*sample{round(200, 1, 0), round(400, 1, 0), round(800, 1, 0)}
	r := ratioRow("send", 8, these, those, loadRow("send", "durable", 8, "", these), loadRow("send", "lean", 8, "", those))
	if r.Case != "durable ÷ lean" || r.Ratio != 0.5 || r.Spread != 0 || !slices.Contains(r.Doubts, "durable: others took 50 % of the CPU") {
		t.Errorf("%+v", r)
	}
}
