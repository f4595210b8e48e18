package show

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Progress is a bar on stderr that shows how far a command is. If stderr is not a
// terminal, it shows nothing. Only one goroutine may use it, except for clear,
// which any goroutine may call.
type Progress struct {
	w     io.Writer // nil: silent
	what  string
	total int64 // 0: unknown
	done  int64
	shown time.Time
}

// barWidth leaves room for the rest of the line in a terminal of 40 columns: a
// line that wraps cannot be drawn again or cleared.
const barWidth = 16

// NewProgress begins a bar on stderr. A total of 0 is unknown.
func NewProgress(stderr io.Writer, what string, total int64) *Progress {
	return &Progress{w: Terminal(stderr), what: what, total: total}
}

// Terminal returns the terminal under w if w is a screen, otherwise nil.
func Terminal(w io.Writer) io.Writer {
	if OnScreen(w) {
		return Under(w)
	}
	return nil
}

func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (p *Progress) Add(n int64) {
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
	fmt.Fprintf(p.w, "\r%s [%s%s] %3.0f %%", p.what, strings.Repeat("=", full),
		strings.Repeat(" ", barWidth-full), share*100)
}

// Clear removes the bar, so that another line can be printed.
func (p *Progress) Clear() {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", len(p.what)+barWidth+12))
	}
}

func (p *Progress) End() { p.Clear() }

// Reporting returns a function that draws the progress of a command of several
// steps, and one that removes the bar.
func Reporting(stderr io.Writer) (report func(what string, done, total int64), end func()) {
	var p *Progress
	end = func() {
		if p != nil {
			p.End()
		}
	}
	return func(what string, done, total int64) {
		if p == nil || p.what != what {
			end()
			p = NewProgress(stderr, what, total)
		}
		p.Add(done - p.done)
	}, end
}
