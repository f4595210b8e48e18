package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A Picture shows figures of one report.
type Picture struct {
	File string // its name, as in "p99.svg"
	SVG  []byte // nil: the report has no figures for it
	Why  string // then, what is missing
}

// Pictures draws what the figures of a report allow. It returns all pictures that there
// are, in their order. A report that was read back must have passed ReadReport.
func Pictures(r *Report) (all []Picture) {
	for _, p := range []struct {
		file, why string
		chart     chart
	}{
		{"throughput.svg", "there are no figures of the stage send", r.throughput()},
		{"p99.svg", "there are no figures of the stage send", r.tail()},
		{"cpu.svg", "there is no CPU time of the server in the stages send and ack; only Linux tells it, of a relay that bench started", r.cost()},
		{"stored.svg", "there are no figures of the stage scale, which needs --stored", r.filled()},
	} {
		out := Picture{File: p.file, Why: p.why}
		if len(p.chart.series) > 0 {
			p.chart.about = r.about()
			out.SVG, out.Why = p.chart.svg(), ""
		}
		all = append(all, out)
	}
	return all
}

// Drawn tells whether a picture shows figures of a stage.
func Drawn(stage string) bool { return slices.Contains([]string{"send", "ack", "scale"}, stage) }

// A drawnCase is a case of a stage, and its name in a picture.
type drawnCase struct{ stage, name, label string }

var sendCases = []drawnCase{
	{"send", "durable", "durable: on disk when the 201 comes"},
	{"send", "bare", "bare: durable, and in no conversation"},
	{"send", "http_only", "http_only: a relay that keeps nothing"},
	{"send", "lean", "lean: a server that only checks requests"},
}

// costCases are in the order in which each does more than the one before.
var costCases = []drawnCase{
	{"send", "lean", "lean: the request is only checked"},
	{"send", "http_only", "http_only: a relay that keeps nothing"},
	{"send", "durable", "durable: and it is on disk"},
	{"ack", "send to receipt", "ack: and pushed, acknowledged, receipt"},
}

func (r *Report) throughput() chart {
	return chart{title: "Messages accepted in a second, over connections",
		x: axis{title: "connections, each with one message under way (logarithmic)", unit: "connections"}, y: axis{title: "messages/s", unit: "messages/s"},
		series: r.series(sendCases, func(row *Row) float64 { return row.PerSecond })}
}

func (r *Report) tail() chart {
	return chart{title: "p99 of the time until a message is accepted, over connections",
		x: axis{title: "connections, each with one message under way (logarithmic)", unit: "connections"}, y: axis{title: "p99, ms (logarithmic)", unit: "ms", log: true},
		series: r.series(sendCases, func(row *Row) float64 { return row.P99 / 1000 })}
}

func (r *Report) cost() chart {
	return chart{title: "CPU time of the server for a message, by what is done with it", bars: true,
		x: axis{title: "connections (with ack: pairs of Mechas), each with one message under way", unit: "connections"}, y: axis{title: "µs of CPU", unit: "µs"},
		series: r.series(costCases, func(row *Row) float64 { return row.ServerCPU })}
}

// filled has a line for each number of connections.
func (r *Report) filled() chart {
	c := chart{title: "Messages accepted in a second, over messages stored",
		x: axis{title: "messages in the database before (logarithmic)", unit: "stored"}, y: axis{title: "messages/s", unit: "messages/s"}}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Stage != "scale" || row.Unit != "messages" || row.IsRatio() || row.Stored < 1 || row.PerSecond <= 0 {
			continue
		}
		name := grouped(row.At) + " connections"
		if row.At == 1 {
			name = "1 connection"
		}
		at := slices.IndexFunc(c.series, func(s series) bool { return s.name == name })
		if at < 0 {
			at = len(c.series)
			c.series = append(c.series, series{name: name})
		}
		c.series[at].points = append(c.series[at].points, point{float64(row.Stored), row.PerSecond, len(row.Doubts) > 0})
	}
	c.sort()
	return c
}

// series makes a series of each case that has figures, over the number of connections.
func (r *Report) series(cases []drawnCase, figure func(*Row) float64) []series {
	var c chart
	for _, k := range cases {
		s := series{name: k.label}
		for i := range r.Rows {
			row := &r.Rows[i]
			if y := figure(row); row.Stage == k.stage && row.Case == k.name && row.At > 0 && y > 0 {
				s.points = append(s.points, point{float64(row.At), y, len(row.Doubts) > 0})
			}
		}
		if len(s.points) > 0 {
			c.series = append(c.series, s)
		}
	}
	c.sort()
	return c.series
}

func (c *chart) sort() {
	for _, s := range c.series {
		slices.SortStableFunc(s.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	}
}

// about says of which run the figures are, in lines.
func (r *Report) about() []string {
	whose := "relay " + clip(r.Relay, 40)
	if r.URL != "" {
		whose += ", which ran already"
	}
	rounds := fmt.Sprintf("the median of %d rounds of %g s", r.Repeats, r.Duration)
	if r.Repeats == 1 {
		rounds = fmt.Sprintf("one round of %g s", r.Duration)
	}
	return []string{
		fmt.Sprintf("%s, %s, %s, %d CPUs, %s", whose, clip(r.Go, 20), clip(r.System, 20), r.CPUs, r.Began.UTC().Format("2 January 2006, 15:04 UTC")),
		fmt.Sprintf("payloads of %d bytes, %s Mechas, %s", r.Payload, grouped(r.Mechas), rounds),
	}
}

// clip cuts a text that has more than n characters.
func clip(s string, n int) string {
	if all := []rune(s); len(all) > n {
		return string(all[:n-1]) + "…"
	}
	return s
}

// reportFormat changes when a figure of the same name means something else.
const reportFormat = 1

const (
	largestReport = 16 << 20 // bytes
	largestFigure = 1e12     // for which the pictures have room
)

// ReadReport reads a report that relay bench --json has written. It refuses one of
// another format, and figures that no run gives.
func ReadReport(in io.Reader) (*Report, error) {
	text, err := io.ReadAll(io.LimitReader(in, largestReport+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) == 0:
		return nil, errors.New("it is empty; relay bench --json writes such a file")
	case len(text) > largestReport:
		return nil, fmt.Errorf("it is larger than %d bytes, as no report of relay bench is", largestReport)
	}
	var format struct {
		Format *int `json:"format"`
	}
	r := &Report{}
	if err := json.Unmarshal(text, &format); err != nil {
		return nil, fmt.Errorf("it is not what relay bench --json writes: %w", err)
	}
	if format.Format == nil {
		return nil, errors.New("it has no format: it is not what relay bench --json writes, or an older relay wrote it. Measure again")
	}
	if *format.Format != reportFormat {
		return nil, fmt.Errorf("it has the format %d, and this relay reads %d: draw with the relay that measured", *format.Format, reportFormat)
	}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("it is not what relay bench --json writes: %w", err)
	}
	return r, r.check()
}

// check refuses figures that no run gives.
func (r *Report) check() error {
	for i := range r.Rows {
		row := &r.Rows[i]
		for name, v := range map[string]float64{"at": float64(row.At), "per_second": row.PerSecond, "p99_us": row.P99, "server_cpu_us": row.ServerCPU, "stored_messages": float64(row.Stored)} {
			if v < 0 || v > largestFigure {
				return fmt.Errorf("row %d (%q, %q) says %s: %g, which no run gives", i+1, clip(row.Stage, 40), clip(row.Case, 80), name, v)
			}
		}
	}
	return nil
}
