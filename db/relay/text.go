package relay

import (
	"fmt"
	"strings"
	"unicode"
)

// Steers tells whether a character steers a terminal instead of being shown by
// it: a control character, of C0 or C1, or DEL; a separator of lines or paragraphs
// (U+2028, U+2029), at which some terminals begin a line; or a bidirectional mark,
// which changes the order in which its neighbours are shown.
func Steers(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// Visible writes a text that somebody else chose so that people can read it
// within a sentence or a cell of a table: a character that Steers becomes its
// escape in JSON, as in \u001b, and a byte that is not UTF-8 becomes U+FFFD. So
// the text has no line breaks, which could forge a line.
func Visible(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if !strings.ContainsFunc(s, Steers) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if Steers(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
