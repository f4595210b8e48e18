package bench

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay/db/scratch"
)

// drawer is the program that draws reports.
const drawer = "../../contrib/benchmarks/draw.py"

// python runs Python with these arguments, and returns what it said.
func python(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	out, err := exec.Command(scratch.Python(t), args...).CombinedOutput()
	return strings.ReplaceAll(string(out), "\r\n", "\n"), err
}

// draw draws files with reports, and returns the folder and what was said.
func draw(t *testing.T, files ...string) (folder, said string, err error) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "pictures")
	said, err = python(t, append([]string{drawer, folder}, files...)...)
	return folder, said, err
}

// written writes a file of a test.
func written(t *testing.T, text []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "figures.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// pictured draws a report and returns the pictures by their files. Those that are not drawn
// say why.
func pictured(t *testing.T, r *Report) (drawn, why map[string]string) {
	t.Helper()
	r.Format = reportFormat
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	folder, said, err := draw(t, written(t, text))
	drawn, why = map[string]string{}, map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^not drawn: (\S+) \((.+)\)$`).FindAllStringSubmatch(said, -1) {
		why[m[1]] = m[2]
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		drawn[filepath.Base(file)] = string(text)
	}
	if (err != nil) != (len(drawn) == 0) {
		t.Fatalf("%d pictures, and %v\n%s", len(drawn), err, said)
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

// texts returns what a picture says, and where.
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

	// A bar ends where its number on the axis is; all are on the axis.
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
		{"nothing", []Row{}, ""},
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
		rows = append(rows, Row{Stage: "send", Case: "durable", At: 1 + i*i, PerSecond: 1e12 / float64(1+i), P99: 1e-9 * float64(1+i*i*i), ServerCPU: 1e-300},
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
	const most, largest = 8, 1e12
	lasts := []float64{1e-9, .0031, .5, 1, 7, 8, 99.9, 100, 101, 33_420, largest}
	pairs := [][2]float64{{1, 1}, {1e-9, 1e12}, {.0004, 3}, {1.2, 25}, {2, 20}, {9, 11}, {1000, 1000}, {.3, .3}, {.7, 24}}
	given, err := json.Marshal(map[string]any{"lasts": lasts, "pairs": pairs})
	if err != nil {
		t.Fatal(err)
	}
	const program = `import json, sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import draw
given = json.loads(sys.argv[2])
print(json.dumps({"steps": [draw.steps(x) for x in given["lasts"]], "powers": [draw.powers(*x) for x in given["pairs"]]}))`
	out, err := python(t, "-c", program, filepath.Dir(drawer), string(given))
	var got struct{ Steps, Powers [][]float64 }
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Steps) != len(lasts) || len(got.Powers) != len(pairs) {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, last := range lasts {
		ticks := got.Steps[i]
		if n := len(ticks); n < 3 || n > most || ticks[0] != 0 || ticks[n-1] < last || ticks[n-2] >= last {
			t.Errorf("to %g: %v", last, ticks)
		}
	}
	for i, c := range pairs {
		ticks := got.Powers[i]
		if n := len(ticks); n < 2 || n > most+1 || ticks[0] > c[0] || ticks[n-1] < c[1] || !slices.IsSorted(ticks) {
			t.Errorf("from %g to %g: %v", c[0], c[1], ticks)
		}
	}
	if got := fmt.Sprint(got.Powers[len(pairs)-1]); got != "[0.5 1 2 5 10 20 50]" {
		t.Error(got)
	}
}

func TestAReportThatIsNoneIsRefused(t *testing.T) {
	const bad = "not what relay bench --json writes"
	for text, says := range map[string]string{
		"":                          bad,
		"relay dev, go1.26":         bad,
		`{"format":1,"rows":[`:      bad,
		`[]`:                        bad,
		`{}`:                        "has no format",
		`{"relay":"0.1"}`:           "an older relay wrote it",
		`{"format":2,"rows":"new"}`: "has the format 2, and this program reads 1",
		`{"format":1}{"format":1}`:  bad,
		`{"format":1,"rows":[{"stage":"send","case":"durable","at":"many"}]}`:     "row 1 says at: many",
		`{"format":1,"rows":[{},{"stage":"send","case":"bare","per_second":-1}]}`: "row 2 says per_second: -1",
		`{"format":1,"rows":[{"stage":"send","case":"bare","p99_us":1e300}]}`:     "p99_us: 1e+300",
	} {
		file := written(t, []byte(text))
		folder, said, err := draw(t, file)
		if _, made := os.Stat(folder); err == nil || !strings.HasPrefix(said, file+": ") || !strings.Contains(said, says) || made == nil {
			t.Errorf("%.60s: %v, not %q", text, said, says)
		}
	}
}

func TestAPictureIsOfOneRun(t *testing.T) {
	const begin = `{"format":1,"relay":"dev","go":"go1.26","system":"linux","cpus":2,"began_at":"2026-11-26T11:04:18Z","duration_seconds":2,"repeats":1,"payload_bytes":5,"mechas":2,"rows":[`
	one := written(t, []byte(begin+`{"stage":"send","case":"durable","at":1,"per_second":5,"p99_us":5}]}`))
	same := written(t, []byte(begin+`{"stage":"send","case":"lean","at":1,"p99_us":5}]}`))
	other := written(t, []byte(begin+`{"stage":"scale","case":"sends, 100 stored","at":1,"stored_messages":100,"unit":"messages","per_second":5}]}`))
	if _, said, err := draw(t, one, same); err == nil || !strings.Contains(said, one+" and "+same+" both have the figures of p99.svg") {
		t.Errorf("%v: %s", err, said)
	}
	folder, said, err := draw(t, one, other)
	want := "not drawn: cpu.svg (there is no CPU time of the server in the stages send and ack; only Linux has it, of a relay that bench started)\n"
	for _, file := range []string{"throughput.svg", "p99.svg", "stored.svg"} {
		want += "drawn: " + filepath.Join(folder, file) + "\n"
	}
	if err != nil || said != want {
		t.Errorf("%v: %s", err, said)
	}
	if _, said, err := draw(t, one, filepath.Join(folder, "away.json")); err == nil || !strings.Contains(said, "away.json") {
		t.Errorf("%v: %s", err, said)
	}
}

// The pictures of BENCHMARKS.md are those that its figures give.
func TestThePicturesAreOfTheFigures(t *testing.T) {
	folder, said, err := draw(t, "../../contrib/benchmarks/figures.json", "../../contrib/benchmarks/stored.json")
	if err != nil {
		t.Fatal(said)
	}
	for _, file := range []string{"throughput.svg", "p99.svg", "cpu.svg", "stored.svg"} {
		drawn, _ := os.ReadFile(filepath.Join(folder, file))
		if kept, err := os.ReadFile(filepath.Join("../../contrib/benchmarks", file)); err != nil || string(kept) != string(drawn) {
			t.Errorf("%s is another picture (%v): draw it with %s", file, err, drawer)
		}
	}
}
