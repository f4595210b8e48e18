package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pictured draws a report, as it is when it has been written and read back, and returns
// the pictures by their files. Those that are not drawn say why.
func pictured(t *testing.T, r *Report) (drawn map[string]string, why map[string]string) {
	t.Helper()
	r.Format = reportFormat
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadReport(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	drawn, why = map[string]string{}, map[string]string{}
	for _, p := range Pictures(read) {
		if p.SVG != nil {
			drawn[p.File] = string(p.SVG)
		}
		if p.Why != "" {
			why[p.File] = p.Why
		}
	}
	return drawn, why
}

// elements reads an SVG and returns its elements of a name, each with its attributes, and
// its own text as "".
func elements(t *testing.T, svg, name string) (all []map[string]string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for open := []map[string]string{}; ; {
		token, err := d.Token()
		switch token := token.(type) {
		case xml.StartElement:
			one := map[string]string{"": ""}
			for _, a := range token.Attr {
				one[a.Name.Local] = a.Value
			}
			open = append(open, one)
			if token.Name.Local == name {
				all = append(all, one)
			}
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1][""] += string(token)
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		}
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}

// texts gives what a picture says, and where.
func texts(t *testing.T, svg string) (all []string, place map[string][2]float64) {
	place = map[string][2]float64{}
	for _, e := range elements(t, svg, "text") {
		x, _ := strconv.ParseFloat(e["x"], 64)
		y, _ := strconv.ParseFloat(e["y"], 64)
		all, place[e[""]] = append(all, e[""]), [2]float64{x, y}
	}
	return all, place
}

func TestAPictureHasItsFiguresInTheirPlaces(t *testing.T) {
	drawn, _ := pictured(t, &Report{Relay: "1.2.3", Go: "go1.26", System: "linux/amd64", CPUs: 2, Began: time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC), Duration: 2, Repeats: 3, Payload: 512, Mechas: 1000,
		Rows: []Row{
			{Stage: "send", Case: "durable", At: 64, PerSecond: 15000, P99: 20_000, ServerCPU: 76},
			{Stage: "send", Case: "durable", At: 1, PerSecond: 1500, P99: 2_000, ServerCPU: 300, Doubts: []string{"only 20 operations"}},
			{Stage: "send", Case: "lean", At: 1, PerSecond: 30000, P99: 200, ServerCPU: 39},
			{Stage: "send", Case: "ratio", At: 1, Ratio: .5},
			{Stage: "scale", Case: "sends, 100 stored", At: 64, Unit: "messages", PerSecond: 12000, Stored: 100},
			{Stage: "scale", Case: "sends, 1,000 stored", At: 64, Unit: "messages", PerSecond: 9000, Stored: 1000},
			{Stage: "scale", Case: "ratio", At: 64, Ratio: .75},
			{Stage: "scale", Case: "first page", At: 1, Unit: "records", PerSecond: 90, Stored: 100},
		}})
	if len(drawn) != 4 {
		t.Fatalf("%d pictures", len(drawn))
	}
	for _, c := range []struct{ file, line string }{
		{"throughput.svg", "M108.0 %.1fL642.0 %.1f"}, // from 1 to 64 connections, in the order of x
		{"p99.svg", "M108.0 %.1fL642.0 %.1f"},
		{"stored.svg", "M108.0 %.1fL642.0 %.1f"},
	} {
		_, place := texts(t, drawn[c.file])
		// A number stands 4 pixels below the middle of its grid line.
		ends := map[string][2]float64{
			"throughput.svg": {place["0"][1] - 4 + (place["5,000"][1]-place["0"][1])*1500/5000, place["15,000"][1] - 4},
			"p99.svg":        {place["2"][1] - 4, place["20"][1] - 4},
			"stored.svg":     {place["12,000"][1] - 4, (place["8,000"][1]+place["10,000"][1])/2 - 4},
		}[c.file]
		want := fmt.Sprintf(c.line, ends[0], ends[1])
		if !slices.ContainsFunc(elements(t, drawn[c.file], "path"), func(e map[string]string) bool { return e["d"] == want }) {
			t.Errorf("%s has no line %s:\n%s", c.file, want, drawn[c.file])
		}
	}

	// A bar ends where its number on the axis is; all stand on the axis.
	_, place := texts(t, drawn["cpu.svg"])
	var bars []string
	for _, e := range elements(t, drawn["cpu.svg"], "rect") {
		if !strings.Contains(e["class"], "mark") {
			continue
		}
		y, _ := strconv.ParseFloat(e["y"], 64)
		height, _ := strconv.ParseFloat(e["height"], 64)
		perMicro := (place["0"][1] - place["50"][1]) / 50
		bars = append(bars, fmt.Sprintf("%s %.0f", e["class"], height/perMicro))
		if !near(y+height, place["0"][1]-4) {
			t.Errorf("a bar stands on %.1f", y+height)
		}
	}
	if want := []string{"mark s0 f0 39", "mark s1 hollow 300", "mark s1 f1 76"}; !slices.Equal(bars, want) {
		t.Errorf("the bars are %q, not %q", bars, want)
	}
	for file, has := range map[string][]string{
		"throughput.svg": {"messages/s", "connections, each with one message under way (logarithmic)", "durable: on disk when the 201 comes", "64"},
		"p99.svg":        {"p99, ms (logarithmic)", "lean: a server that only checks requests", "1"},
		"cpu.svg":        {"µs of CPU", "300", "76", "39"},
		"stored.svg":     {"messages/s", "64 connections", "100", "1,000"},
	} {
		has = append(has, "relay 1.2.3, go1.26, linux/amd64, 2 CPUs, 24 November 2026, 08:00 UTC", "payloads of 512 bytes, 1,000 Mechas, the median of 3 rounds of 2 s")
		said, _ := texts(t, drawn[file])
		for _, text := range has {
			if !slices.Contains(said, text) {
				t.Errorf("%s does not say %q, but %q", file, text, said)
			}
		}
		hollow := slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "Hollow: ") })
		if hollow != (file != "stored.svg") {
			t.Errorf("%s: doubts: %v", file, hollow)
		}
	}
	const text = "durable: on disk when the 201 comes: 1,500 messages/s at 1 connection (cannot be trusted); 15,000 messages/s at 64 connections."
	if words := elements(t, drawn["throughput.svg"], "desc"); len(words) != 1 || !strings.Contains(words[0][""], text) {
		t.Errorf("in words: %q", words)
	}
}

// Figures that were not measured are not drawn, and neither are those of other stages.
func TestAPictureWithoutFiguresSaysWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name  string
		rows  []Row
		drawn string
	}{
		{"nothing", nil, ""},
		{"another stage", []Row{{Stage: "push", Case: "durable", At: 1, PerSecond: 5, P99: 5, ServerCPU: 5}}, ""},
		{"rounds too short for an operation", []Row{{Stage: "send", Case: "durable", At: 1}, {Stage: "scale", Unit: "messages", At: 1, Stored: 100}}, ""},
		{"not on Linux", []Row{{Stage: "send", Case: "durable", At: 8, PerSecond: 5, P99: 5}}, "p99.svg throughput.svg"},
		{"only the whole life", []Row{{Stage: "ack", Case: "send to receipt", At: 8, PerSecond: 5, P99: 5, ServerCPU: 5}}, "cpu.svg"},
		{"pages of a full database", []Row{{Stage: "scale", Case: "first page", Unit: "records", At: 1, PerSecond: 5, Stored: 100}}, ""},
	} {
		drawn, why := pictured(t, &Report{Rows: c.rows})
		var files []string
		for f := range drawn {
			files = append(files, f)
		}
		slices.Sort(files)
		if got := strings.Join(files, " "); got != c.drawn || len(drawn)+len(why) != 4 {
			t.Errorf("%s: drawn are %q, the others say %q", c.name, got, why)
		}
	}
}

// A report may come from anybody: no word of it becomes markup, and no figure leaves the picture.
func TestAPictureOfAStrangeReportIsAPicture(t *testing.T) {
	const evil = "</text><script>alert(1)</script><image href=\"https://evil.example\"/>&\x01\u202e"
	var rows []Row
	for i := range 400 {
		rows = append(rows, Row{Stage: "send", Case: "durable", At: 1 + i*i, PerSecond: largestFigure / float64(1+i), P99: 1e-9 * float64(1+i*i*i), ServerCPU: 1e-300},
			Row{Stage: "scale", Case: evil, Unit: "messages", At: i, Stored: 7, PerSecond: 3})
	}
	drawn, _ := pictured(t, &Report{Relay: evil, Go: evil, System: evil, URL: evil, Rows: rows})
	if len(drawn) != 4 {
		t.Fatalf("%d pictures", len(drawn))
	}
	for file, svg := range drawn {
		for _, name := range []string{"script", "image", "a", "foreignObject"} {
			if n := len(elements(t, svg, name)); n > 0 {
				t.Errorf("%s has %d elements %s", file, n, name)
			}
		}
		if said, _ := texts(t, svg); len(said) < 10 || !strings.HasPrefix(said[1], "relay </text><script>") {
			t.Errorf("%s says %q", file, said)
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s has a place that is no number", file)
		}
	}
}

func TestTicksAreRoundAndHoldTheFigures(t *testing.T) {
	for _, last := range []float64{1e-9, .0031, .5, 1, 7, 8, 99.9, 100, 101, 33_420, largestFigure} {
		ticks := steps(last)
		if n := len(ticks); n < 3 || n > mostTicks || ticks[0] != 0 || ticks[n-1] < last || ticks[n-2] >= last {
			t.Errorf("to %g: %v", last, ticks)
		}
	}
	for _, c := range [][2]float64{{1, 1}, {1e-9, 1e12}, {.0004, 3}, {1.2, 25}, {2, 20}, {9, 11}, {1000, 1000}, {.3, .3}} {
		ticks := powers(c[0], c[1])
		if n := len(ticks); n < 2 || n > mostTicks+1 || ticks[0] > c[0] || ticks[n-1] < c[1] || !slices.IsSorted(ticks) {
			t.Errorf("from %g to %g: %v", c[0], c[1], ticks)
		}
	}
	if got := fmt.Sprint(powers(.7, 24)); got != "[0.5 1 2 5 10 20 50]" {
		t.Error(got)
	}
}

func TestAReportThatIsNoneIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		"":                          "it is empty",
		"relay dev, go1.26":         "not what relay bench --json writes",
		`{"format":1,"rows":[`:      "not what relay bench --json writes",
		`[]`:                        "not what relay bench --json writes",
		`{}`:                        "has no format",
		`{"relay":"0.1"}`:           "an older relay wrote it",
		`{"format":2,"rows":"new"}`: "has the format 2, and this relay reads 1",
		`{"format":1}{"format":1}`:  "not what relay bench --json writes",
		`{"format":1,"rows":[{"stage":"send","case":"durable","at":"many"}]}`:     "rows.at",
		`{"format":1,"rows":[{},{"stage":"send","case":"bare","per_second":-1}]}`: `row 2 ("send", "bare") says per_second: -1`,
		`{"format":1,"rows":[{"stage":"send","case":"bare","p99_us":1e300}]}`:     "p99_us: 1e+300",
		`{"format":1,"rows":[]}` + strings.Repeat(" ", largestReport):             "larger than",
	} {
		if _, err := ReadReport(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v, not %q", text, err, says)
		}
	}
}
