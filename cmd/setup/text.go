// Package setup merges a server and a hook into the configuration files of other
// programs, and takes them out again. It changes the text of a file where it must and
// nowhere else: order, comments, indentation, line ends and what it does not know stay as
// they are. It refuses a file that it does not understand, and then changes nothing.
//
// It knows the files of programs, and nothing of the relay. A file is read as a whole, edited as a text, read again and
// then replaced (plan.go); program.go has what belongs where.
//
// hujson reads and writes JSON: its tree has every byte of a text. It fails at four things, which are done here:
//   - Value.Patch loses comments and keeps no layout: {"a": 1, /* mine */ "relay": {}} without /relay becomes {"a": 1},
//     and an object of several lines gets "a": 1,"relay":{}; Format then rewrites the whole file, with tabs. So
//     json_edit.go moves white space and comments itself.
//   - Parse calls itself for each level: 16 MiB of [ end the process. So tooDeep looks first.
//   - Parse refuses // a at the end of a file without a line end. So one is added, and taken off again.
//   - An error shows the value that is refused, which may be a key. So hujsonError leaves it out.
//
// One thing is lost by hujson: it refuses U+2028 and U+2029 in // comments, which VS Code accepts.
//
// go-toml reads TOML and, by its package unstable, knows where each statement is. It writes no text but its
// own, so toml_edit.go appends a table to the text, or cuts statements out of it. creachadair/tomledit v0.0.29
// failed at this: it rewrites the whole file (a=1 # c becomes a = 1 # c; CRLF becomes LF; arrays are laid out
// again), accepts a = 1 twice, and refuses a byte order mark and TOML 1.1, such as { a = 1, }.
package setup

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ParseError is a text that cannot be understood, or has something else where an entry
// belongs. Line and Column begin at 1; a column is a character.
type ParseError struct {
	Line, Column int
	Reason       string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// errorAt makes the error for an offset in a text.
func errorAt(text []byte, offset int, format string, args ...any) error {
	before := text[:min(offset, len(text))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return &ParseError{line, column, fmt.Sprintf(format, args...)}
}

// offsetOf returns the offset of a place. line and column begin at 1; the column is a byte.
func offsetOf(text []byte, line, column int) int {
	offset := 0
	for range line - 1 {
		offset += bytes.IndexByte(text[offset:], '\n') + 1
	}
	return min(offset+column-1, len(text))
}

const byteOrderMark = "\ufeff"

// start parts a byte order mark from a text. It refuses what is not UTF-8.
func start(text []byte) (mark string, rest []byte, err error) {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return "", nil, errorAt(text, 0, "the file is UTF-16; only UTF-8 is understood")
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 {
			return "", nil, errorAt(text, i, "this is not UTF-8")
		}
		i += n
	}
	if rest, marked := bytes.CutPrefix(text, []byte(byteOrderMark)); marked {
		return byteOrderMark, rest, nil
	}
	return "", text, nil
}

// lineEnd is how the first line of a text ends, and a line feed if there is but one line.
func lineEnd(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// indentAt is the white space at the beginning of the line of an offset.
func indentAt(text []byte, offset int) string {
	line := text[bytes.LastIndexByte(text[:offset], '\n')+1 : offset]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// splice replaces text[from:to].
func splice(text []byte, from, to int, with string) []byte {
	return []byte(string(text[:from]) + with + string(text[to:]))
}

// dotted writes a path for people.
func dotted(path []string) string { return strings.Join(path, ".") }
