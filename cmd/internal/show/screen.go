package show

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"relay/db/relay"
)

// A screen is a terminal that a command prints to. Others have written the
// messages, profiles, error texts and arguments: a control character in them could
// steer the terminal, and a bidirectional mark could disguise the text. A screen
// shows such a character as its escape in JSON, as in \u001b. JSON keeps its value,
// since such characters stand in its strings only. Line feeds and tabs pass: they
// are the layout of the output. A carriage return becomes a line feed, which is
// white space in JSON too.
//
// The commands print to stdout and stderr, which are screens if they are
// terminals. Output that goes elsewhere is not touched. Write may be called
// concurrently.
type screen struct {
	file *os.File

	mu       sync.Mutex
	begun    []byte // the first bytes of a character, until the others are written
	returned bool   // the last character was a carriage return: the line has ended
}

// Stream returns the stream by which a command prints to w: a screen if w is a
// terminal, otherwise w itself.
func Stream(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && IsTerminal(f) {
		return &screen{file: f}
	}
	return w
}

// OnScreen reports whether w is a screen, so that people read its text.
func OnScreen(w io.Writer) bool {
	_, ok := w.(*screen)
	return ok
}

// Under returns the terminal itself if w is a screen, otherwise w. The programs that
// a command starts write to it, and so do lines with colours and progress bars, in
// which the words of others are Visible already.
func Under(w io.Writer) io.Writer {
	if s, ok := w.(*screen); ok {
		return s.file
	}
	return w
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := append(s.begun, p...)
	whole := len(text) - begun(text)
	var b bytes.Buffer
	for rest := text[:whole]; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		s.show(&b, r)
		rest = rest[n:]
	}
	s.begun = bytes.Clone(text[whole:])
	if _, err := s.file.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// show writes one character. A byte that is not UTF-8 comes as utf8.RuneError, and
// is shown as that.
func (s *screen) show(b *bytes.Buffer, r rune) {
	ended := s.returned
	s.returned = r == '\r'
	switch {
	case r == '\n' && ended: // the carriage return before it has ended the line
	case r == '\r':
		b.WriteByte('\n')
	case r == '\n' || r == '\t' || !relay.Steers(r):
		b.WriteRune(r)
	default:
		fmt.Fprintf(b, `\u%04x`, r)
	}
}

// begun counts the bytes at the end of a text that belong to a character which is
// not complete.
func begun(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
