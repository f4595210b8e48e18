// Package strict reads JSON objects by the rules of PROTOCOL §1, which are
// stricter than RFC 8259: no two readers may see two different messages in one
// text. It also writes JSON strings.
//
// ReadObject checks a whole text and hands over the members of its outermost
// object, each value as the bytes that were sent. String, Int, IsNull and
// IsObject say what such a value is. AppendString writes a string.
//
// The package knows JSON and nothing of the relay: no field names, no limits on
// lengths. Package relay reads requests with it, and package file checks stored
// payloads. All functions are safe for concurrent use.
package strict

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth is the depth of the deepest object or array that ReadObject
// accepts. The outermost object has depth 0, a payload depth 1 (PROTOCOL §1).
const maxJSONDepth = 64

// The escapes of one letter: jsonEscapes[i] after a backslash stands for jsonEscaped[i].
const (
	jsonEscapes = `bfnrt"\/`
	jsonEscaped = "\b\f\n\r\t\"\\/"
)

// A SyntaxError says why ReadObject refused a text (invalid_json, PROTOCOL §6).
// Both fields may be shown to the client.
type SyntaxError struct {
	Offset int    // the first byte that is not allowed, counted from 0
	Reason string // for people
}

// Error returns the offset and the reason in one line.
func (e *SyntaxError) Error() string {
	return "invalid JSON at byte " + strconv.Itoa(e.Offset) + ": " + e.Reason
}

// ReadObject reads data as one JSON object (RFC 8259) and calls member for each
// of its members, in order. member gets the unescaped name and the bytes of the
// value: a part of data, without the white space around it, to be read by IsNull,
// IsObject, Int and String. For a name in known, member gets that string itself.
//
// As PROTOCOL §1 demands, ReadObject also refuses invalid UTF-8 and lone surrogates
// anywhere; objects and arrays nested deeper than 64 below the outermost object; a name
// of the outermost object that occurs twice after unescaping (inside a value it may); and
// a name that differs from a known one in letter case alone, as strings.EqualFold
// compares.
//
// ReadObject calls member before it has read all of data. If it returns an error,
// the caller must discard the members so far. A fault in data is a *SyntaxError.
// An error from member ends the reading and is returned unchanged.
//
// ReadObject keeps no reference to data and takes time linear in its length. It
// is safe for concurrent use.
func ReadObject(data []byte, known []string, member func(name string, value []byte) error) error {
	return readObject(data, maxJSONDepth, known, member)
}

// ReadEnvelope is ReadObject for an object with a value that is itself read by
// ReadObject. Objects and arrays may be nested one deeper, so that both read that text
// alike.
func ReadEnvelope(data []byte, known []string, member func(name string, value []byte) error) error {
	return readObject(data, maxJSONDepth+1, known, member)
}

func readObject(data []byte, deepest int, known []string, member func(name string, value []byte) error) error {
	// Checking all of data at once is several times faster than rune by rune. After
	// this, the reader can go by bytes.
	if !utf8.Valid(data) {
		return &SyntaxError{firstInvalidUTF8(data), "invalid UTF-8"}
	}
	r, names := jsonReader{data: data, deepest: deepest}, jsonNames{known: known}
	i := r.space(0)
	if r.at(i) != '{' {
		r.fail(i, "expected an object")
		return r.err
	}
	i, more := r.open(i, '}')
	for more {
		nameEnd, start, end := r.member(i, 0)
		if r.err != nil {
			return r.err
		}
		name, reason := names.add(data[i+1 : nameEnd-1])
		if reason != "" {
			return &SyntaxError{i, reason}
		}
		if err := member(name, data[start:end:end]); err != nil {
			return err
		}
		i, more = r.comma(end, '}')
	}
	if i = r.space(i); i < len(data) {
		r.fail(i, "data after the object")
	}
	return r.err
}

// jsonReader implements the grammar of RFC 8259. Each method takes the offset where its
// production begins and returns the offset after it. After a fault, a method returns the
// end of data. Every production stops there, so none checks err.
type jsonReader struct {
	data    []byte
	deepest int   // the depth of the deepest object or array that is accepted
	err     error // the first fault
}

// at returns the byte at i, or 0 after the end. No production allows a 0 byte.
func (r *jsonReader) at(i int) byte {
	if i < len(r.data) {
		return r.data[i]
	}
	return 0
}

// fail notes the first fault, at offset i, and returns the end of data.
func (r *jsonReader) fail(i int, reason string) int {
	if i >= len(r.data) {
		i, reason = len(r.data), "unexpected end"
	}
	if r.err == nil {
		r.err = &SyntaxError{i, reason}
	}
	return len(r.data)
}

// space skips white space.
func (r *jsonReader) space(i int) int {
	for c := r.at(i); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = r.at(i) {
		i++
	}
	return i
}

func (r *jsonReader) value(i, depth int) int {
	switch c := r.at(i); c {
	case '"':
		return r.str(i)
	case '{':
		return r.object(i, depth)
	case '[':
		return r.array(i, depth)
	case 't':
		return r.literal(i, "true")
	case 'f':
		return r.literal(i, "false")
	case 'n':
		return r.literal(i, "null")
	}
	return r.number(i)
}

func (r *jsonReader) object(i, depth int) int {
	if depth > r.deepest {
		return r.fail(i, "nested too deeply")
	}
	i, more := r.open(i, '}')
	for more {
		_, _, end := r.member(i, depth)
		i, more = r.comma(end, '}')
	}
	return i
}

func (r *jsonReader) array(i, depth int) int {
	if depth > r.deepest {
		return r.fail(i, "nested too deeply")
	}
	i, more := r.open(i, ']')
	for more {
		i, more = r.comma(r.value(i, depth+1), ']')
	}
	return i
}

// member reads a member of an object of the given depth. The name is
// data[i:nameEnd], with its quotes, and the value is data[start:end].
func (r *jsonReader) member(i, depth int) (nameEnd, start, end int) {
	if r.at(i) != '"' {
		i = r.fail(i, "expected a member name")
		return i, i, i
	}
	nameEnd = r.str(i)
	i = r.space(nameEnd)
	if r.at(i) != ':' {
		i = r.fail(i, "expected ':'")
	}
	start = r.space(i + 1)
	return nameEnd, start, r.value(start, depth+1)
}

// open skips an opening bracket. more says that the object or array is not empty.
func (r *jsonReader) open(i int, closing byte) (next int, more bool) {
	if i = r.space(i + 1); r.at(i) == closing {
		return i + 1, false
	}
	return i, true
}

// comma reads a comma or the closing bracket after a member or an element. more says that
// another one must follow.
func (r *jsonReader) comma(i int, closing byte) (next int, more bool) {
	switch i = r.space(i); r.at(i) {
	case ',':
		return r.space(i + 1), true
	case closing:
		return i + 1, false
	}
	return r.fail(i, "expected ',' or '"+string(closing)+"'"), false
}

func (r *jsonReader) literal(i int, word string) int {
	for k := range len(word) {
		if r.at(i+k) != word[k] {
			return r.fail(i+k, "expected "+word)
		}
	}
	return i + len(word)
}

// number reads to the end of a number. It does not look at the bytes after it:
// in 01, comma refuses the 1.
func (r *jsonReader) number(i int) int {
	switch c := r.at(i); {
	case c == '-':
		i++
	case c < '0' || c > '9':
		return r.fail(i, "expected a value")
	}
	if r.at(i) == '0' {
		i++
	} else {
		i = r.digits(i)
	}
	if r.at(i) == '.' {
		i = r.digits(i + 1)
	}
	if c := r.at(i); c == 'e' || c == 'E' {
		if i++; r.at(i) == '+' || r.at(i) == '-' {
			i++
		}
		i = r.digits(i)
	}
	return i
}

func (r *jsonReader) digits(i int) int {
	first := i
	for c := r.at(i); '0' <= c && c <= '9'; c = r.at(i) {
		i++
	}
	if i == first {
		return r.fail(i, "expected a digit")
	}
	return i
}

// str reads a string. The byte at i is its opening quote.
func (r *jsonReader) str(i int) int {
	for i++; ; {
		switch i = skipPlainJSON(r.data, i); r.at(i) {
		case '"':
			return i + 1
		case '\\':
			i = r.escape(i)
		default:
			return r.fail(i, "control character in a string")
		}
	}
}

// escape reads one escape, or the two of a surrogate pair. It refuses a lone
// surrogate: RFC 8259 §8.2 leaves its meaning open, and readers differ.
func (r *jsonReader) escape(i int) int {
	if c := r.at(i + 1); strings.IndexByte(jsonEscapes, c) >= 0 {
		return i + 2
	} else if c != 'u' {
		return r.fail(i+1, "unknown escape")
	}
	switch first := hex4(r.data[i+2:]); {
	case first < 0:
		return r.fail(i, "expected four hexadecimal digits after \\u")
	case !utf16.IsSurrogate(first):
		return i + 6
	case r.at(i+6) == '\\' && r.at(i+7) == 'u' &&
		utf16.DecodeRune(first, hex4(r.data[i+8:])) != utf8.RuneError:
		return i + 12
	}
	return r.fail(i, "lone surrogate")
}

// skipPlainJSON returns the offset of the first quote, backslash or control character at
// or after i. It advances by eight bytes a step, since most of a body is strings.
func skipPlainJSON(data []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(data)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		// A byte below the one subtracted borrows, which sets its top bit. A borrow
		// can only change higher bytes, and only the lowest hit is used.
		hit := (w - ones*' ') | (w ^ ones*'"' - ones) | (w ^ ones*'\\' - ones)
		if hit = hit &^ w & tops; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for i < len(data) && data[i] >= ' ' && data[i] != '"' && data[i] != '\\' {
		i++
	}
	return i
}

// jsonNames remembers the names of one object. A known name takes one bit. The
// others need a map, because 1 MiB holds 100,000 of them.
type jsonNames struct {
	known  []string
	seen   uint64 // bit i is set once known[i] was seen
	others map[string]struct{}
}

// add unescapes a name, given without its quotes. It returns the name, or the
// reason why the name is not allowed.
func (n *jsonNames) add(raw []byte) (name, reason string) {
	var buf [64]byte // so that an escaped known name does not allocate
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw = appendUnescaped(buf[:0], raw)
	}
	for i, k := range n.known[:min(len(n.known), 64)] {
		if string(raw) == k {
			if n.seen&(1<<i) != 0 {
				return "", "duplicate name " + strconv.Quote(k)
			}
			n.seen |= 1 << i
			return k, ""
		}
	}
	name = string(raw)
	for _, k := range n.known {
		if name != k && strings.EqualFold(name, k) {
			return "", "the name " + strconv.Quote(name) + " must be written " + strconv.Quote(k) + "; letter case counts"
		}
	}
	if _, ok := n.others[name]; ok {
		return "", "duplicate name"
	}
	if n.others == nil {
		n.others = make(map[string]struct{})
	}
	n.others[name] = struct{}{}
	return name, ""
}

func firstInvalidUTF8(data []byte) int {
	for i := 0; ; {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size < 2 {
			return i
		}
		i += size
	}
}
