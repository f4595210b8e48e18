package strict

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// String returns the text of a string value from ReadObject, unescaped. ok is
// false for a value that is not a string.
func String(value []byte) (s string, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	value = value[1 : len(value)-1]
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value), true
	}
	return string(appendUnescaped(make([]byte, 0, len(value)), value)), true
}

// Int returns an integer value from ReadObject. ok is false for a number with a
// fraction or an exponent, a number beyond int64, and a value that is not a number.
func Int(value []byte) (n int64, ok bool) {
	if len(value) > len("-9223372036854775808") {
		return 0, false
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil
}

// IsNull reports whether a value from ReadObject is null.
func IsNull(value []byte) bool { return string(value) == "null" }

// IsObject reports whether a value from ReadObject is an object.
func IsObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// appendUnescaped appends the text of a string to dst. raw is the string without
// its quotes, as jsonReader has accepted it.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		if c != 'u' {
			dst = append(dst, jsonEscaped[strings.IndexByte(jsonEscapes, c)])
			continue
		}
		u := hex4(raw)
		raw = raw[4:]
		if utf16.IsSurrogate(u) {
			u = utf16.DecodeRune(u, hex4(raw[2:]))
			raw = raw[6:]
		}
		dst = utf8.AppendRune(dst, u)
	}
}

// hex4 returns the number in the first four bytes of b, which are hexadecimal
// digits, or -1.
func hex4(b []byte) (n rune) {
	if len(b) < 4 {
		return -1
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		n = n<<4 | rune(c)
	}
	return n
}

// AppendString appends s to dst as a JSON string. It escapes quotes, backslashes, control
// characters, and U+2028 and U+2029, which end a line in old JavaScript. Bytes that are
// not UTF-8 become U+FFFD. Everything else is copied.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	done := 0 // s[:done] is in dst
	for i := 0; i < len(s); {
		c := s[i]
		if ' ' <= c && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if c < utf8.RuneSelf || r == '\u2028' || r == '\u2029' || r == utf8.RuneError && size == 1 {
			dst = appendEscape(append(dst, s[done:i]...), r)
			done = i + size
		}
		i += size
	}
	return append(append(dst, s[done:]...), '"')
}

func appendEscape(dst []byte, r rune) []byte {
	if i := strings.IndexRune(jsonEscaped, r); i >= 0 {
		return append(dst, '\\', jsonEscapes[i])
	}
	if r == utf8.RuneError {
		return utf8.AppendRune(dst, r)
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
