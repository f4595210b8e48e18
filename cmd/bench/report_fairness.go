package bench

import "fmt"

// Fair is a row of the stage fairness: the figures of one probe of the bystander in
// all rounds of one attack.
type Fair struct {
	Attack    string `json:"attack"`
	What      string `json:"what"`
	Clients   int    `json:"clients"`
	Bystander string `json:"bystander"` // the name of the probe
	Alone     Met    `json:"alone"`
	Control   Met    `json:"beside_control_load"`
	Attacked  Met    `json:"attacked"`
	// Ratio is the p99 under attack divided by the greater of the two others, since a lack of CPU is not
	// unfair. It is 0 if nothing succeeded.
	Ratio         float64  `json:"ratio"`
	Begun         float64  `json:"attacker_begun_per_second"` // accepted, refused, or not answered yet
	Accepted      float64  `json:"attacker_accepted_per_second"`
	Refused       float64  `json:"attacker_refused_per_second"`
	Broken        float64  `json:"attacker_connections_broken_per_second"`
	AttackCores   float64  `json:"attack_cores,omitempty"` // kept busy by the relay and the attacker
	AttackerCores float64  `json:"attacker_cores,omitempty"`
	ControlCores  float64  `json:"control_cores,omitempty"` // by the relay and the control load
	Others        *float64 `json:"others_cpu_share,omitempty"`
	Doubts        []string `json:"doubts,omitempty"`
}

// Met has the figures of a probe in the phases of one kind: alone, attacked, or under the control load.
type Met struct {
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Operations int     `json:"operations"`
	Failed     int     `json:"failed"`
	Problem    string  `json:"problem,omitempty"` // the first failure
}

// MaxRatio is the ratio up to which a row is fair.
const MaxRatio = 3

// Withstood reports whether the bystander got all its answers, and soon enough.
func (f *Fair) Withstood() bool { return f.Attacked.Failed == 0 && f.Ratio > 0 && f.Ratio <= MaxRatio }

// Busy reports whether other programs took so much of the CPU that the figure
// cannot be trusted. Then this is the first of the doubts.
func (f *Fair) Busy() bool { return f.Others != nil && *f.Others > maxOthers }

func fairRows(a attack, rounds []*contest) (rows []Fair) {
	for _, name := range a.probes {
		met := func(of func(*contest) *phase) Met { return metIn(rounds, name, of) }
		f := Fair{Attack: a.name, What: a.what, Clients: a.clients, Bystander: name,
			Alone:    met(func(c *contest) *phase { return c.alone }),
			Control:  met(func(c *contest) *phase { return c.control }),
			Attacked: met(func(c *contest) *phase { return c.attacked })}
		of := func(value func(*contest) float64) float64 { return median(rounds, value) }
		f.Begun = of(func(c *contest) float64 { t := c.attacked.tally; return t.perSecond(t.Begun) })
		f.Accepted = of(func(c *contest) float64 { t := c.attacked.tally; return t.perSecond(t.Accepted) })
		f.Refused = of(func(c *contest) float64 { t := c.attacked.tally; return t.perSecond(t.Refused) })
		f.Broken = of(func(c *contest) float64 { t := c.attacked.tally; return t.perSecond(t.Broken) })
		f.AttackCores = of(func(c *contest) float64 { return c.attacked.cores() })
		f.AttackerCores = of(func(c *contest) float64 { return c.attacked.beside.Seconds() / c.attacked.took.Seconds() })
		f.ControlCores = of(func(c *contest) float64 { return c.control.cores() })
		f.Ratio = f.Attacked.P99 / max(f.Alone.P99, f.Control.P99, 1)
		f.doubt(rounds)
		rows = append(rows, f)
	}
	return rows
}

// metIn puts together what a probe found in the phases of one kind.
func metIn(rounds []*contest, probe string, of func(*contest) *phase) (m Met) {
	var all Histogram
	for _, c := range rounds {
		p := of(c).probes[probe]
		all.Add(&p.latency)
		m.Failed += p.failed
		if p.problem != nil && m.Problem == "" {
			m.Problem = p.problem.Error()
		}
	}
	m.P50, m.P99, m.Operations = micros(all.Quantile(.5)), micros(all.Quantile(.99)), all.Count()
	return m
}

func (f *Fair) doubt(rounds []*contest) {
	known, worst, refused, restless := true, 0.0, int64(0), 0
	for _, c := range rounds {
		for _, p := range []*phase{c.alone, c.attacked, c.control} {
			known, worst = known && p.cpu.Known, max(worst, p.cpu.Others)
			if p.restless {
				restless++
			}
		}
		refused += c.control.tally.Refused + c.control.tally.Broken
	}
	if known {
		f.Others = &worst
	}
	if f.Busy() {
		f.Doubts = append(f.Doubts, fmt.Sprintf("others took %.0f %% of the CPU", worst*100))
	}
	if refused > 0 {
		f.Doubts = append(f.Doubts, fmt.Sprintf("the control load was refused or cut off %d times", refused))
	}
	if restless > 0 {
		f.Doubts = append(f.Doubts, fmt.Sprintf("%d of the phases began while the relay was still busy with the one before",
			restless))
	}
	if n := min(f.Alone.Operations, f.Control.Operations, f.Attacked.Operations); n < minOperations {
		f.Doubts = append(f.Doubts, fmt.Sprintf("only %d operations", n))
	}
	if n := f.Alone.Failed + f.Control.Failed; n > 0 {
		f.Doubts = append(f.Doubts, fmt.Sprintf("%d failures without the attack, the first: %s%s",
			n, f.Alone.Problem, f.Control.Problem))
	}
}
