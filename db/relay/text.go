package relay

import (
	"fmt"
	"strings"
	"unicode"
)

// Steers reports whether a character steers a terminal instead of being shown. Such
// characters are the control characters (C0, C1 and DEL), the separators of lines and
// paragraphs (U+2028, U+2029), at which some terminals begin a line, and the
// bidirectional marks, which change the order in which their neighbours are shown.
func Steers(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// Visible makes untrusted text fit for a sentence or a cell of a table. A character that
// Steers a terminal becomes its escape in JSON, as in \u001b, and a byte that is not
// UTF-8 becomes U+FFFD. So the text has no line breaks, which could forge a line.
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

// ShellWord writes a text, such as a path, as one word of a POSIX shell, for a command in
// a sentence that a person pastes. It adds quotation marks only where they are needed.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-+:,@", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
