package console

import (
	"fmt"
	"strings"
	"time"
)

// plot is a small line of the last hour, as inline SVG in a box of plotWidth by plotHeight.
type plot struct {
	Name    string
	Value   string // the latest
	Top     string // the greatest of the hour
	Line    string // the path of the line
	Area    string // the path of what is below it
	Unknown int    // up to this x, nothing is known
	Label   string // for who cannot see it
	From    string
	// Counting tells that the last hour is not counted yet.
	Counting bool
	To       string
}

const (
	plotWidth  = 240
	plotHeight = 48
)

// draw makes a plot of a value of each span. A negative value is one that is not known.
func draw(name string, h *lastHour, show func(float64) string, value func(*point) float64) plot {
	all := h.points
	p := plot{Counting: !h.counted, Name: name, Value: "–", Top: "–", From: all[0].Begin.Local().Format("15:04"),
		To: all[len(all)-1].Begin.Local().Format("15:04 MST")}
	values, top, latest := make([]float64, len(all)), 0.0, -1.0
	step := float64(plotWidth) / float64(len(all)-1)
	for i := range all {
		if values[i] = value(&all[i]); all[i].Begin.Add(spanLength).Before(h.from) {
			values[i] = -1
			p.Unknown = min(int(float64(i+1)*step), plotWidth)
		}
		top = max(top, values[i])
		if values[i] >= 0 {
			latest = values[i]
		}
	}
	if latest < 0 {
		p.Label = name + ": nothing is known of the last hour"
		if p.Counting {
			p.Label = name + ": the last hour is being counted"
		}
		return p
	}
	p.Value, p.Top = show(latest), show(top)
	p.Label = fmt.Sprintf("%s in the last hour: now %s, at most %s", name, p.Value, p.Top)
	scale := (plotHeight - 4) / max(top, 1e-9)
	var line, area strings.Builder
	begun, last, known := false, 0.0, 0
	for i, v := range values {
		x := float64(i) * step
		if v < 0 {
			continue // the line continues at the next known value
		}
		known++
		if begun && i+1 < len(values) && v == values[i-1] && v == values[i+1] {
			continue // in the middle of a flat part
		}
		y := plotHeight - 1 - v*scale
		if !begun {
			fmt.Fprintf(&line, "M%.1f %.1f", x, y)
			fmt.Fprintf(&area, "M%.1f %dL%.1f %.1f", x, plotHeight, x, y)
		} else {
			fmt.Fprintf(&line, "L%.1f %.1f", x, y)
			fmt.Fprintf(&area, "L%.1f %.1f", x, y)
		}
		begun, last = true, x
	}
	if known == 1 { // a point alone would not be seen
		fmt.Fprintf(&line, "h%.1f", map[bool]float64{true: step, false: -step}[last+step <= plotWidth])
	}
	if begun {
		fmt.Fprintf(&area, "L%.1f %dZ", last, plotHeight)
	}
	p.Line, p.Area = line.String(), area.String()
	return p
}

// rate shows a count of a span as a rate.
func rate(n float64) string {
	switch r := n / spanLength.Seconds(); {
	case r < 10:
		return count(int(n/spanLength.Minutes()+0.5)) + "/min"
	default:
		return count(int(r+0.5)) + "/s"
	}
}

func seconds(s float64) string { return took(time.Duration(s * float64(time.Second))) }

func number(n float64) string { return count(int(n)) }
