package cmd

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"relay/db/relay"
)

// A table aligns cells for people to read. It has colours on a terminal only.
type table struct {
	w       *tabwriter.Writer
	painted bool
}

// newTable begins a table on w with a line of titles.
func newTable(w io.Writer, titles ...any) *table {
	t := &table{w: tabwriter.NewWriter(under(w), 0, 0, 2, ' ', 0), painted: colourful(w)}
	t.row(titles...)
	return t
}

// row adds a line. Its cells are made Visible.
func (t *table) row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			io.WriteString(t.w, "\t")
		}
		if p, ok := cell.(paint); ok {
			fmt.Fprint(t.w, p.escaped(t.painted))
		} else {
			io.WriteString(t.w, relay.Visible(fmt.Sprint(cell)))
		}
	}
	io.WriteString(t.w, "\n")
}

// end prints the table. t may be nil.
func (t *table) end() error {
	if t == nil {
		return nil
	}
	return t.w.Flush()
}

// A colour is the code of a terminal for one. All codes have the same length, so a
// column stays aligned if every cell of it has a colour.
type colour string

const (
	uncoloured colour = "39"
	red        colour = "31"
	green      colour = "32"
	yellow     colour = "33"
	blue       colour = "34"
	grey       colour = "90"
)

// paint returns text in this colour.
func (c colour) paint(text string) paint { return paint{c, text} }

// A paint is text in a colour.
type paint struct {
	colour colour
	text   string
}

// on returns the text as it is shown on w: in its colour if w is a screen that shows
// colours.
func (p paint) on(w io.Writer) string { return p.escaped(colourful(w)) }

func (p paint) escaped(painted bool) string {
	if !painted {
		return relay.Visible(p.text)
	}
	return "\x1b[" + string(p.colour) + "m" + relay.Visible(p.text) + "\x1b[0m"
}

// colourful reports whether w is a screen that shows colours (https://no-color.org).
func colourful(w io.Writer) bool {
	return onScreen(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// stateColour lets messages that wait or have failed stand out.
func stateColour(state, status string) colour {
	switch {
	case status == "failed" || status == "rejected" || state == "overdue" || state == "conversation_full":
		return red
	case state == "queued" || state == "accepted":
		return yellow
	case state == "delivered" || state == "progress" || state == "pushed":
		return blue
	case state == "acknowledged":
		return green
	}
	return grey
}

// heading is the title of a column of painted cells, as long as they are.
func heading(title string) paint { return uncoloured.paint(title) }
