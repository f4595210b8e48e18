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

func (a *app) tableOf(titles ...any) *table {
	t := &table{w: tabwriter.NewWriter(under(a.stdout), 0, 0, 2, ' ', 0), painted: a.colourful()}
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
			fmt.Fprint(t.w, p.on(t.painted))
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

// A paint is text in a colour. The codes of all colours have the same length, so a
// column stays aligned if every cell of it has a colour.
type paint struct{ colour, text string }

const (
	plainText = "39"
	red       = "31"
	green     = "32"
	yellow    = "33"
	blue      = "34"
	grey      = "90"
)

func (p paint) on(painted bool) string {
	if !painted {
		return relay.Visible(p.text)
	}
	return "\x1b[" + p.colour + "m" + relay.Visible(p.text) + "\x1b[0m"
}

// colourful tells whether stdout is a terminal that shows colours
// (https://no-color.org).
func (a *app) colourful() bool {
	return onScreen(a.stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// stateColour lets messages that wait or have failed stand out.
func stateColour(state, status string) string {
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
func heading(title string) paint { return paint{plainText, title} }
