package http

import (
	"net/http"
	"strings"
	"time"
)

// preferredWait reads how long a Prefer header asks to wait (RFC 7240 §4.3); above
// maxWait counts as that. If there are several wait preferences, the first one counts
// (§2). A preference that is malformed is none.
func preferredWait(h http.Header) (wait time.Duration, preferred bool) {
	for _, p := range cutOutsideQuotes(strings.Join(h["Prefer"], ","), ',') {
		name, value, _ := strings.Cut(cutOutsideQuotes(p, ';')[0], "=")
		if strings.EqualFold(strings.TrimSpace(name), "wait") {
			n, ok := wholeNumber(strings.Trim(strings.TrimSpace(value), `"`), int(maxWait/time.Second))
			return time.Duration(n) * time.Second, ok
		}
	}
	return 0, false
}

// cutOutsideQuotes splits s at each sep that is not in a quoted string (RFC 9110 §5.6.4).
func cutOutsideQuotes(s string, sep byte) (parts []string) {
	quoted, from := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == sep && !quoted:
			parts, from = append(parts, s[from:i]), i+1
		}
	}
	return append(parts, s[from:])
}
