package bench

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A chart is drawn as lines over a logarithmic x, or as groups of bars. All its
// figures are above 0, and each series has one.
type chart struct {
	title  string
	about  []string // lines below the title
	x, y   axis
	bars   bool // one group for each x
	series []series
}

type axis struct {
	title, unit string
	log         bool // logarithmic, else from 0; of the axis y
}

type series struct {
	name   string
	points []point // by x
}

type point struct {
	x, y     float64
	doubtful bool // the figure cannot be trusted
}

// The measures of a picture, in pixels where it is shown in its own size.
const (
	width                = 700
	plotLeft, plotRight  = 74, width - 24
	plotHeight           = 260
	legendRow            = 20
	besideFirst          = 34   // from the axis to the first and to the last x
	characterWidth       = 6.8  // of a label, roughly
	narrowestWithNumbers = 22.0 // the bar
)

// style has colours of which each stands out from the ground, in a light and in a dark
// page. A viewer that does not know the question shows the light ones.
const style = `text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1f2328}
.title{font-size:16px;font-weight:600}.soft{font-size:12px;fill:#59636e}.number{font-size:11px}
.ground{fill:#fff}.grid{stroke:#d1d9e0}.axis{stroke:#59636e}.line{fill:none;stroke-width:2}.mark{stroke-width:2}.hollow{fill:#fff}
.s0{stroke:#0969da}.s1{stroke:#bc4c00}.s2{stroke:#1a7f37}.s3{stroke:#8250df}.s4{stroke:#bf3989}.s5{stroke:#57606a}
.f0{fill:#0969da}.f1{fill:#bc4c00}.f2{fill:#1a7f37}.f3{fill:#8250df}.f4{fill:#bf3989}.f5{fill:#57606a}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}.ground,.hollow{fill:#0d1117}.grid{stroke:#3d444d}.axis{stroke:#9198a1}
.s0{stroke:#58a6ff}.s1{stroke:#f0883e}.s2{stroke:#3fb950}.s3{stroke:#bc8cff}.s4{stroke:#f778ba}.s5{stroke:#b1bac4}
.f0{fill:#58a6ff}.f1{fill:#f0883e}.f2{fill:#3fb950}.f3{fill:#bc8cff}.f4{fill:#f778ba}.f5{fill:#b1bac4}}
`

const colours, shapes = 6, 4

// A drawing is a chart under way.
type drawing struct {
	bytes.Buffer
	*chart
	top, bottom          float64 // of the plot
	horizontal, vertical scale   // bars do not need the first
}

// svg draws the chart. It depends on nothing but the chart, and has no script and no links.
func (c *chart) svg() []byte {
	d := &drawing{chart: c}
	legend := (len(c.series) + 1) / 2
	d.top = float64(46 + 17*len(c.about) + legendRow*legend + 30)
	d.bottom = d.top + plotHeight
	height := d.bottom + 54
	note := c.has(func(p point) bool { return p.doubtful })
	if note {
		height += 20
	}
	xs, ys := c.values(func(p point) float64 { return p.x }), c.values(func(p point) float64 { return p.y })
	d.horizontal = exactScale(xs[0], xs[len(xs)-1], plotLeft+besideFirst, plotRight-besideFirst)
	d.vertical = roundScale(ys[0], ys[len(ys)-1], c.y.log, d.bottom, d.top)
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" viewBox="0 0 %d %.0f" role="img" aria-labelledby="title figures">`+"\n", width, height, width, height)
	fmt.Fprintf(d, "<title id=\"title\">%s</title>\n<desc id=\"figures\">%s</desc>\n<style>%s</style>\n", escaped(c.title), escaped(c.inWords()), style)
	fmt.Fprintf(d, `<rect class="ground" width="%d" height="%.0f"/>`+"\n", width, height)
	d.text("title", 16, 28, "start", c.title)
	for i, line := range c.about {
		d.text("soft", 16, float64(48+17*i), "start", line)
	}
	d.legend(float64(46 + 17*len(c.about) + 14))
	d.axes(xs)
	for i, s := range c.series {
		if c.bars {
			d.barsOf(i, s, xs)
		} else {
			d.lineOf(i, s)
		}
	}
	if note {
		d.text("soft", 16, height-10, "start", "Hollow: the figure cannot be trusted. relay bench says why in its table and in its JSON.")
	}
	d.WriteString("</svg>\n")
	return d.Bytes()
}

func (c *chart) has(f func(point) bool) bool {
	return slices.ContainsFunc(c.series, func(s series) bool { return slices.ContainsFunc(s.points, f) })
}

// values gives what the points have, each once, in order.
func (c *chart) values(of func(point) float64) (all []float64) {
	for _, s := range c.series {
		for _, p := range s.points {
			all = append(all, of(p))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// inWords has all figures of the picture, for those who do not see it.
func (c *chart) inWords() string {
	var b strings.Builder
	for _, s := range c.series {
		fmt.Fprintf(&b, "%s: ", s.name)
		for i, p := range s.points {
			if i > 0 {
				b.WriteString("; ")
			}
			b.WriteString(c.tells(p))
		}
		b.WriteString(". ")
	}
	return b.String() + strings.Join(c.about, "; ") + "."
}

// tells says what a point means.
func (c *chart) tells(p point) string {
	at, doubt := c.x.unit, ""
	if p.x == 1 {
		at = strings.TrimSuffix(at, "s")
	}
	if p.doubtful {
		doubt = " (cannot be trusted)"
	}
	return fmt.Sprintf("%s %s at %s %s%s", figure(p.y), c.y.unit, figure(p.x), at, doubt)
}

// legend names the series, in two columns.
func (d *drawing) legend(y float64) {
	for i, s := range d.series {
		x := 22 + float64(i%2)*340
		at := y + float64(i/2)*legendRow
		if d.bars {
			fmt.Fprintf(d, `<rect class="f%d" x="%.1f" y="%.1f" width="12" height="12"/>`, i%colours, x-6, at-10)
		} else {
			fmt.Fprintf(d, `<path class="line s%d" d="M%.1f %.1fh24"/>`, i%colours, x-6, at-4)
			d.mark(i, x+6, at-4, point{})
		}
		d.text("", x+26, at, "start", clip(s.name, 46))
	}
}

// axes draws the grid, the numbers and the titles of the axes.
func (d *drawing) axes(xs []float64) {
	d.text("soft", 16, d.top-12, "start", d.y.title)
	for _, v := range d.vertical.ticks {
		y := d.vertical.at(v)
		fmt.Fprintf(d, `<path class="grid" d="M%d %.1fH%d"/>`, plotLeft, y, plotRight)
		d.text("", plotLeft-8, y+4, "end", figure(v))
	}
	end := 0.0 // of the number before
	for i, v := range xs {
		x, half := d.middle(xs, i), characterWidth*float64(len(figure(v)))/2
		fmt.Fprintf(d, `<path class="axis" d="M%.1f %.1fv5"/>`, x, d.bottom)
		if x-half > end {
			d.text("", x, d.bottom+20, "middle", figure(v))
			end = x + half + characterWidth
		}
	}
	fmt.Fprintf(d, `<path class="axis" d="M%d %.1fH%d"/>`, plotLeft, d.bottom, plotRight)
	d.text("soft", (plotLeft+plotRight)/2, d.bottom+42, "middle", d.x.title)
}

// middle gives the place of an x: on a line by its value, of bars by its number.
func (d *drawing) middle(xs []float64, i int) float64 {
	if d.bars {
		return plotLeft + (float64(i)+.5)*(plotRight-plotLeft)/float64(len(xs))
	}
	return d.horizontal.at(xs[i])
}

func (d *drawing) lineOf(i int, s series) {
	fmt.Fprintf(d, "\n"+`<path class="line s%d" d="`, i%colours)
	for k, p := range s.points {
		fmt.Fprintf(d, "%c%.1f %.1f", "ML"[min(k, 1)], d.horizontal.at(p.x), d.vertical.at(p.y))
	}
	d.WriteString(`"/>`)
	for _, p := range s.points {
		fmt.Fprintf(d, "\n<g><title>%s: %s</title>", escaped(s.name), escaped(d.tells(p)))
		d.mark(i, d.horizontal.at(p.x), d.vertical.at(p.y), p)
		d.WriteString("</g>")
	}
	d.WriteByte('\n')
}

// mark draws a point of a series. Shapes differ, for those to whom colours look alike.
func (d *drawing) mark(series int, x, y float64, p point) {
	shape := []string{"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "m-4 -4h8v8h-8z", "m0 -5l5 9h-10z", "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z"}[series%shapes]
	fill := fmt.Sprintf("f%d", series%colours)
	if p.doubtful {
		fill = "hollow"
	}
	fmt.Fprintf(d, `<path class="mark s%d %s" d="M%.1f %.1f%s"/>`, series%colours, fill, x, y, shape)
}

// barsOf draws the bars of a series, each in the group of its x.
func (d *drawing) barsOf(i int, s series, xs []float64) {
	group := (plotRight - plotLeft) / float64(len(xs))
	wide := min(.84*group/float64(len(d.series)), 34)
	for _, p := range s.points {
		k, _ := slices.BinarySearch(xs, p.x)
		x := d.middle(xs, k) + (float64(i)-float64(len(d.series))/2)*wide
		y, fill := d.vertical.at(p.y), fmt.Sprintf("f%d", i%colours)
		if p.doubtful {
			fill = "hollow"
		}
		fmt.Fprintf(d, "\n"+`<g><title>%s: %s</title><rect class="mark s%d %s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/></g>`,
			escaped(s.name), escaped(d.tells(p)), i%colours, fill, x+wide*.08+1, y, max(wide*.84-2, 1), max(d.bottom-y, 0))
		if wide >= narrowestWithNumbers {
			d.text("number", x+wide/2, y-5, "middle", figure(p.y))
		}
	}
	d.WriteByte('\n')
}

// text writes a text at a place. anchor says which end of it is there.
func (d *drawing) text(class string, x, y float64, anchor, s string) {
	fmt.Fprintf(d, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, escaped(s))
}

// escaped writes text so that no character of it is markup.
func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes all
	return b.String()
}

// figure writes a number for people, with three digits that count.
func figure(v float64) string {
	switch {
	case v >= 1e9:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case v >= 100:
		return grouped(int(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
