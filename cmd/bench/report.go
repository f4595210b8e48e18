package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// reportFormat changes when a figure of the same name means something else.
const reportFormat = 1

// Report has the figures of a run. The names have the units. contrib/benchmarks/draw.py
// draws it.
type Report struct {
	Format   int       `json:"format"` // reportFormat
	Relay    string    `json:"relay"`
	Go       string    `json:"go"`
	System   string    `json:"system"`
	CPUs     int       `json:"cpus"`
	Began    time.Time `json:"began_at"`
	URL      string    `json:"url,omitempty"` // of a relay that ran already
	Duration float64   `json:"duration_seconds"`
	Repeats  int       `json:"repeats"`
	Payload  int       `json:"payload_bytes"`
	Mechas   int       `json:"mechas"`
	Stored   int       `json:"stored_messages,omitempty"` // in the database before anything was measured
	Rows     []Row     `json:"rows"`
	Fairness []Fair    `json:"fairness,omitempty"` // of the stage fairness
}

// Row is one figure: the median of its rounds. Fields that do not apply, or that
// are not known on this system, are left out.
type Row struct {
	Stage     string  `json:"stage"`
	Case      string  `json:"case"`
	At        int     `json:"at,omitempty"`              // how many connections or sockets
	Stored    int     `json:"stored_messages,omitempty"` // in the database before; only where rows differ in that
	Unit      string  `json:"unit,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"` // of the unit
	P50       float64 `json:"p50_us,omitempty"`
	P90       float64 `json:"p90_us,omitempty"`
	P99       float64 `json:"p99_us,omitempty"`
	P999      float64 `json:"p99_9_us,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"`
	Bytes     float64 `json:"bytes_per_socket,omitempty"`
	// for each operation; of sockets with several messages under way, for each message
	ServerCPU float64 `json:"server_cpu_us,omitempty"`
	ClientCPU float64 `json:"client_cpu_us,omitempty"`
	// to disk by the server, for each operation or message, as ServerCPU
	Written    float64  `json:"written_bytes,omitempty"`
	Memory     int64    `json:"server_rss_bytes,omitempty"`
	Others     *float64 `json:"others_cpu_share,omitempty"` // in the worst round
	Operations int      `json:"operations,omitempty"`
	Failed     int      `json:"failed,omitempty"`
	Rounds     int      `json:"rounds"`
	Spread     float64  `json:"spread"`           // (best round - worst round) / median
	Doubts     []string `json:"doubts,omitempty"` // why the figure cannot be trusted
}

// Beyond these limits a figure is doubtful.
const (
	maxOthers     = 0.05 // share of the CPU that other programs may take
	maxSpread     = 0.25
	minOperations = 100 // with fewer, the p99 is a single operation
)

// loadRow makes the row for the rounds of a stage.
func loadRow(stage, name string, at int, unit string, rounds []*sample) Row {
	of := func(f func(*sample) float64) float64 { return median(rounds, f) }
	quantile := func(q float64) float64 {
		return of(func(s *sample) float64 { return micros(s.latency.Quantile(q)) })
	}
	r := Row{Stage: stage, Case: name, At: at, Unit: unit, Rounds: len(rounds), PerSecond: of((*sample).rate),
		P50: quantile(.5), P90: quantile(.9), P99: quantile(.99), P999: quantile(.999),
		ServerCPU: of(func(s *sample) float64 { return micros(s.cpu.Server) / float64(max(s.ops, 1)) }),
		ClientCPU: of(func(s *sample) float64 { return micros(s.cpu.Client) / float64(max(s.ops, 1)) }),
		Written:   of(func(s *sample) float64 { return float64(s.cpu.Written) / float64(max(s.ops, 1)) }),
		Memory:    int64(of(func(s *sample) float64 { return float64(s.memory) })),
		Spread:    spread(rounds, (*sample).rate),
	}
	for _, s := range rounds {
		r.Operations += s.ops
		r.Failed += s.failed
	}
	r.doubt(rounds)
	return r
}

// latencyRow makes a row for a further latency of the same rounds.
func latencyRow(stage, name string, at, which int, rounds []*sample) Row {
	quantile := func(q float64) float64 {
		return median(rounds, func(s *sample) float64 { return micros(s.also[which].Quantile(q)) })
	}
	r := Row{Stage: stage, Case: name, At: at, Rounds: len(rounds), P50: quantile(.5), P90: quantile(.9),
		P99: quantile(.99), P999: quantile(.999), Spread: spread(rounds, func(s *sample) float64 {
			return micros(s.also[which].Quantile(.5))
		})}
	for _, s := range rounds {
		r.Operations += s.also[which].Count()
	}
	r.doubt(rounds)
	return r
}

// ratioRow divides the rates of rounds that alternated, and takes the median. The ratio
// also has the doubts of the rows of both.
func ratioRow(stage string, at int, dividends, divisors []*sample, dividend, divisor Row) Row {
	var ratios []float64
	for i := range dividends {
		ratios = append(ratios, dividends[i].rate()/max(divisors[i].rate(), 1e-9))
	}
	r := Row{Stage: stage, Case: dividend.Case + " ÷ " + divisor.Case, At: at, Rounds: len(ratios),
		Ratio: median(ratios, itself), Spread: spread(ratios, itself)}
	for _, of := range []Row{dividend, divisor} {
		for _, d := range of.Doubts {
			r.Doubts = append(r.Doubts, of.Case+": "+d)
		}
	}
	return r
}

// IsRatio reports whether the row divides one case by another.
func (r *Row) IsRatio() bool { return r.Case == "ratio" || strings.Contains(r.Case, "÷") }

func (r *Row) doubt(rounds []*sample) {
	known, worst := true, 0.0
	var problem error
	for _, s := range rounds {
		known, worst = known && s.cpu.Known, max(worst, s.cpu.Others)
		if problem == nil {
			problem = s.problem
		}
	}
	if known {
		r.Others = &worst
	}
	if r.Busy() {
		r.Doubts = append(r.Doubts, fmt.Sprintf("others took %.0f %% of the CPU", worst*100))
	}
	r.doubtSpread()
	if r.Operations > 0 && r.Operations < minOperations {
		r.Doubts = append(r.Doubts, fmt.Sprintf("only %d operations", r.Operations))
	}
	if problem != nil {
		r.Doubts = append(r.Doubts, fmt.Sprintf("%d requests were refused, the first with %v", r.Failed, problem))
	}
}

func (r *Row) doubtSpread() {
	if r.Spread > maxSpread {
		r.Doubts = append(r.Doubts, fmt.Sprintf("the rounds differ by %.0f %%", r.Spread*100))
	}
}

// Busy reports whether other programs took so much of the CPU that the figure
// cannot be trusted. Then this is the first of the doubts.
func (r *Row) Busy() bool { return r.Others != nil && *r.Others > maxOthers }

func (s *sample) rate() float64 { return float64(s.units) / max(s.took.Seconds(), 1e-9) }

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func median[T any](list []T, f func(T) float64) float64 {
	values := sorted(list, f)
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

func spread[T any](list []T, f func(T) float64) float64 {
	m := median(list, f)
	if m == 0 {
		return 0
	}
	values := sorted(list, f)
	return (values[len(values)-1] - values[0]) / m
}

func itself(f float64) float64 { return f }

func sorted[T any](list []T, f func(T) float64) []float64 {
	values := make([]float64, len(list))
	for i, v := range list {
		values[i] = f(v)
	}
	slices.Sort(values)
	return values
}
