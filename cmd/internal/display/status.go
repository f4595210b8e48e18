package display

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"relay/cmd/internal/show"
)

// statusLine is a line on stderr that says what a command is doing. If stderr is
// not a terminal, it shows nothing. Only one goroutine may use it.
type statusLine struct {
	w     io.Writer // nil: silent
	width int
}

// NewStatusLine begins an empty line on stderr.
func NewStatusLine(stderr io.Writer) *statusLine {
	return &statusLine{w: show.Terminal(stderr)}
}

// Show replaces the line; "" clears it.
func (s *statusLine) Show(text string) {
	if s.w == nil {
		return
	}
	n := utf8.RuneCountInString(text)
	fmt.Fprintf(s.w, "\r%s%s\r", text, strings.Repeat(" ", max(s.width-n, 0)))
	s.width = n
}
