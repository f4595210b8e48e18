package cmd

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// progress is a bar on stderr that shows how far a command is. If stderr is not a
// terminal, it shows nothing. Only one goroutine may use it, except for clear,
// which any goroutine may call.
type progress struct {
	w     io.Writer // nil: silent
	what  string
	total int64 // 0: unknown
	done  int64
	shown time.Time
}

// barWidth leaves room for the rest of the line in a terminal of 40 columns: a
// line that wraps cannot be drawn again or cleared.
const barWidth = 16

// newProgress begins a bar on stderr. A total of 0 is unknown.
func newProgress(stderr io.Writer, what string, total int64) *progress {
	return &progress{w: terminal(stderr), what: what, total: total}
}

// terminal returns the terminal under w if w is a screen, otherwise nil.
func terminal(w io.Writer) io.Writer {
	if onScreen(w) {
		return under(w)
	}
	return nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (p *progress) add(n int64) {
	p.done += n
	if p.w == nil || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	if p.total <= 0 {
		fmt.Fprintf(p.w, "\r%s: %d KiB", p.what, p.done>>10)
		return
	}
	share := min(float64(p.done)/float64(p.total), 1)
	full := int(share * barWidth)
	fmt.Fprintf(p.w, "\r%s [%s%s] %3.0f %%", p.what, strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), share*100)
}

// clear removes the bar, so that another line can be printed.
func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", len(p.what)+barWidth+12))
	}
}

func (p *progress) end() { p.clear() }

// reporting returns a function that draws the progress of a command of several
// steps, and one that removes the bar.
func reporting(stderr io.Writer) (report func(what string, done, total int64), end func()) {
	var p *progress
	end = func() {
		if p != nil {
			p.end()
		}
	}
	return func(what string, done, total int64) {
		if p == nil || p.what != what {
			end()
			p = newProgress(stderr, what, total)
		}
		p.add(done - p.done)
	}, end
}

// statusLine is a line on stderr that says what a command is doing. If stderr is
// not a terminal, it shows nothing. Only one goroutine may use it.
type statusLine struct {
	w     io.Writer // nil: silent
	width int
}

// newStatusLine begins an empty line on stderr.
func newStatusLine(stderr io.Writer) *statusLine {
	return &statusLine{w: terminal(stderr)}
}

// show replaces the line; "" clears it.
func (s *statusLine) show(text string) {
	if s.w == nil {
		return
	}
	n := utf8.RuneCountInString(text)
	fmt.Fprintf(s.w, "\r%s%s\r", text, strings.Repeat(" ", max(s.width-n, 0)))
	s.width = n
}
