// Package setup merges a server and a hook into the configuration files of other
// programs, and takes them out again. It changes the text of a file where it must and
// nowhere else: order, comments, indentation, line ends and what it does not know stay as
// they are. It refuses a file that it does not understand, and then changes nothing.
//
// It knows the files of programs, and nothing of the relay.
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

const byteOrderMark = "\ufeff"

// start returns where a text begins: behind a byte order mark. It refuses what is not UTF-8.
func start(text []byte) (int, error) {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return 0, errorAt(text, 0, "the file is UTF-16; only UTF-8 is understood")
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 {
			return 0, errorAt(text, i, "this is not UTF-8")
		}
		i += n
	}
	if bytes.HasPrefix(text, []byte(byteOrderMark)) {
		return len(byteOrderMark), nil
	}
	return 0, nil
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
	line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// beginsLine tells whether only white space stands before an offset in its line.
func beginsLine(text []byte, offset int) bool {
	line := text[bytes.LastIndexByte(text[:offset], '\n')+1 : offset]
	return len(bytes.Trim(line, " \t")) == 0
}

// splice replaces text[from:to].
func splice(text []byte, from, to int, with string) []byte {
	return []byte(string(text[:from]) + with + string(text[to:]))
}

// dotted writes a path for people.
func dotted(path []string) string { return strings.Join(path, ".") }
