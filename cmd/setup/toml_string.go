package setup

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// str reads a string of any of the four kinds.
func (d *tomlDoc) str() (string, error) {
	from, quote := d.at, d.text[d.at]
	long := strings.Repeat(string(quote), 3)
	several := bytes.HasPrefix(d.text[d.at:], []byte(long))
	d.at++
	if several {
		d.at += 2
		for _, end := range []string{"\n", "\r\n"} {
			if bytes.HasPrefix(d.text[d.at:], []byte(end)) {
				d.at += len(end)
				break
			}
		}
	}
	var s []byte
	for d.at < len(d.text) {
		c := d.text[d.at]
		switch {
		case c == quote && !several:
			d.at++
			return string(s), nil
		case several && bytes.HasPrefix(d.text[d.at:], []byte(long)):
			d.at += 3
			for n := 0; n < 2 && d.peek() == quote; n++ { // up to two quotes may stand before the end
				s = append(s, quote)
				d.at++
			}
			return string(s), nil
		case c == '\\' && quote == '"':
			e, err := d.escape(several)
			if err != nil {
				return "", err
			}
			s = append(s, e...)
			continue
		case c < ' ' && c != '\t' && !(several && (c == '\n' || c == '\r')) || c == 0x7f:
			if c == '\n' || c == '\r' {
				d.at = from
				return "", d.fault("the string has no end in its line")
			}
			return "", d.fault("a string has a control character")
		}
		s = append(s, c)
		d.at++
	}
	d.at = from
	return "", d.fault("the string has no end")
}

var hexEscape = regexp.MustCompile(`^\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})`)

// escape reads what begins with a backslash.
func (d *tomlDoc) escape(several bool) (string, error) {
	rest := d.text[d.at:]
	if m := hexEscape.Find(rest); m != nil {
		var r rune
		if _, err := fmt.Sscanf(string(m[2:]), "%x", &r); err != nil || !utf8.ValidRune(r) {
			return "", d.fault("this escape is no character")
		}
		d.at += len(m)
		return string(r), nil
	}
	if len(rest) > 1 {
		if i := strings.IndexByte(`btnfre"\`, rest[1]); i >= 0 {
			d.at += 2
			return "\b\t\n\f\r\x1b\"\\"[i : i+1], nil
		}
		line := bytes.TrimLeft(rest[1:], " \t")
		if several && (bytes.HasPrefix(line, []byte("\n")) || bytes.HasPrefix(line, []byte("\r\n"))) {
			d.at++
			d.blank(true)
			return "", nil
		}
	}
	return "", d.fault("TOML does not know this escape")
}
