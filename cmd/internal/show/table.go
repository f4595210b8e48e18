package show

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"relay/db/relay"
)

// A table aligns cells for people to read. It has colours on a terminal only.
type Table struct {
	w       *tabwriter.Writer
	painted bool
}

// NewTable begins a table on w with a line of titles.
func NewTable(w io.Writer, titles ...any) *Table {
	t := &Table{w: tabwriter.NewWriter(Under(w), 0, 0, 2, ' ', 0), painted: colourful(w)}
	t.Row(titles...)
	return t
}

// Row adds a line. Its cells are made Visible.
func (t *Table) Row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			io.WriteString(t.w, "\t")
		}
		if p, ok := cell.(Painted); ok {
			fmt.Fprint(t.w, p.escaped(t.painted))
		} else {
			io.WriteString(t.w, relay.Visible(fmt.Sprint(cell)))
		}
	}
	io.WriteString(t.w, "\n")
}

// End prints the table. t may be nil.
func (t *Table) End() error {
	if t == nil {
		return nil
	}
	return t.w.Flush()
}

// A Colour is the code of a terminal for one. All codes have the same length, so a
// column stays aligned if every cell of it has a colour.
type Colour string

const (
	uncoloured Colour = "39"
	Red        Colour = "31"
	Green      Colour = "32"
	Yellow     Colour = "33"
	Blue       Colour = "34"
	Grey       Colour = "90"
)

// Paint returns text in this colour.
func (c Colour) Paint(text string) Painted { return Painted{c, text} }

// A Painted is text in a colour.
type Painted struct {
	colour Colour
	text   string
}

// On returns the text as it is shown on w: in its colour if w is a screen that shows
// colours.
func (p Painted) On(w io.Writer) string { return p.escaped(colourful(w)) }

func (p Painted) escaped(painted bool) string {
	if !painted {
		return relay.Visible(p.text)
	}
	return "\x1b[" + string(p.colour) + "m" + relay.Visible(p.text) + "\x1b[0m"
}

// colourful reports whether w is a screen that shows colours (https://no-color.org).
func colourful(w io.Writer) bool {
	return OnScreen(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Heading is the title of a column of painted cells, as long as they are.
func Heading(title string) Painted { return uncoloured.Paint(title) }
