package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
)

// jsonDoc is a JSON text, and where its parts stand.
type jsonDoc struct {
	text     []byte
	lenient  bool // comments and trailing commas are allowed
	root     *node
	comments []span
	at       int // the parser's place
}

// span is a comment. It ends before the line end.
type span struct {
	from, to int
	line     bool // it began with //, so that only a line end ends it
}

// node is a value: text[from:to].
type node struct {
	kind     byte // { [ " or the first character of another value
	from, to int
	children []child // of an object or an array
}

// child is a member of an object, or an element of an array.
type child struct {
	key   string
	from  int // of the key, or of the value in an array
	value *node
	comma int // where the comma after it stands; -1: there is none
}

const mostDepth = 200

// parseJSON reads a text. An empty one has no root. lenient allows comments and trailing
// commas, as VS Code does. Errors are ParseErrors.
func parseJSON(text []byte, lenient bool) (*jsonDoc, error) {
	d := &jsonDoc{text: text, lenient: lenient}
	var err error
	if d.at, err = start(text); err != nil {
		return nil, err
	}
	if err := d.space(); err != nil {
		return nil, err
	}
	if d.at == len(text) {
		return d, nil
	}
	if d.root, err = d.value(0); err != nil {
		return nil, err
	}
	if err := d.space(); err != nil {
		return nil, err
	}
	if d.at < len(text) {
		return nil, d.fault("something stands after the end of the JSON value")
	}
	return d, nil
}

func (d *jsonDoc) fault(format string, args ...any) error {
	return errorAt(d.text, d.at, format, args...)
}

// peek is the next character, 0 at the end.
func (d *jsonDoc) peek() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

// space passes white space and comments.
func (d *jsonDoc) space() error {
	for d.at < len(d.text) {
		rest := d.text[d.at:]
		switch {
		case bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0:
			d.at++
		case !d.lenient && rest[0] == '/':
			return d.fault("comments are not allowed in this file")
		case bytes.HasPrefix(rest, []byte("//")):
			n := bytes.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			n = len(bytes.TrimRight(rest[:n], "\r"))
			d.comments = append(d.comments, span{d.at, d.at + n, true})
			d.at += n
		case bytes.HasPrefix(rest, []byte("/*")):
			n := bytes.Index(rest[2:], []byte("*/"))
			if n < 0 {
				return d.fault("the comment has no end")
			}
			d.comments = append(d.comments, span{d.at, d.at + n + 4, false})
			d.at += n + 4
		default:
			return nil
		}
	}
	return nil
}

func (d *jsonDoc) value(depth int) (*node, error) {
	if depth > mostDepth {
		return nil, d.fault("the nesting is too deep")
	}
	n := &node{kind: d.peek(), from: d.at}
	var err error
	switch n.kind {
	case '{', '[':
		err = d.container(n, depth)
	case '"':
		_, err = d.str()
	case 0:
		err = d.fault("the text ends where a value belongs")
	default:
		err = d.word()
	}
	n.to = d.at
	return n, err
}

var jsonWord = regexp.MustCompile(`^(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)`)
var wordPart = regexp.MustCompile(`^[A-Za-z0-9_.+-]`)

func (d *jsonDoc) word() error {
	m := jsonWord.Find(d.text[d.at:])
	if m == nil || wordPart.Match(d.text[d.at+len(m):]) {
		return d.fault("this is not a JSON value")
	}
	d.at += len(m)
	return nil
}

// str reads a string.
func (d *jsonDoc) str() (string, error) {
	from := d.at
	for d.at++; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; {
		case c == '\\':
			d.at++
		case c < ' ':
			return "", d.fault("a string has a character that must be written as an escape")
		case c == '"':
			d.at++
			var s string
			if json.Unmarshal(d.text[from:d.at], &s) != nil {
				d.at = from
				return "", d.fault("a string has an escape that JSON does not know")
			}
			return s, nil
		}
	}
	d.at = from
	return "", d.fault("the string has no end")
}

// container reads an object or an array.
func (d *jsonDoc) container(n *node, depth int) error {
	end := map[byte]byte{'{': '}', '[': ']'}[n.kind]
	open := d.at
	d.at++
	for {
		if err := d.space(); err != nil {
			return err
		}
		if d.peek() == end && (len(n.children) == 0 || d.lenient) {
			d.at++
			return nil
		}
		if d.at == len(d.text) {
			d.at = open
			return d.fault("%q has no %q", n.kind, end)
		}
		c, err := d.child(n.kind, depth)
		if err != nil {
			return err
		}
		if err := d.space(); err != nil {
			return err
		}
		next := d.peek()
		if next == ',' {
			c.comma = d.at
		}
		n.children = append(n.children, c)
		switch {
		case next == end:
			d.at++
			return nil
		case d.at == len(d.text):
			d.at = open
			return d.fault("%q has no %q", n.kind, end)
		case next != ',':
			return d.fault("a comma or %q belongs here", end)
		}
		d.at++
	}
}

func (d *jsonDoc) child(kind byte, depth int) (c child, err error) {
	c = child{from: d.at, comma: -1}
	if kind == '{' {
		if d.peek() != '"' {
			return c, d.fault("a name in quotes belongs here")
		}
		if c.key, err = d.str(); err != nil {
			return c, err
		}
		if err = d.space(); err != nil {
			return c, err
		}
		if d.peek() != ':' {
			return c, d.fault("a colon belongs here")
		}
		d.at++
		if err = d.space(); err != nil {
			return c, err
		}
	}
	c.value, err = d.value(depth + 1)
	return c, err
}

// find returns the member of an object by its name, -1 if there is none. A name that
// stands there twice is refused: programs do not agree on which of the two counts.
func (d *jsonDoc) find(n *node, key string) (int, error) {
	found := -1
	for i, c := range n.children {
		switch {
		case c.key != key:
		case found >= 0:
			return -1, errorAt(d.text, c.from, "%q stands here a second time", key)
		default:
			found = i
		}
	}
	return found, nil
}

// walk follows a path of names, and returns the node there, nil if there is none. Every
// node on the way must be an object, and the last of the given kind.
func (d *jsonDoc) walk(path []string, kind byte) (*node, error) {
	n := d.root
	for i := 0; n != nil; i++ {
		want := kind
		if i < len(path) {
			want = '{'
		}
		if n.kind != want {
			where := "the file"
			if i > 0 {
				where = fmt.Sprintf("%q", dotted(path[:i]))
			}
			return nil, errorAt(d.text, n.from, "%s must be %s", where, map[byte]string{'{': "an object", '[': "an array"}[want])
		}
		if i == len(path) {
			return n, nil
		}
		at, err := d.find(n, path[i])
		if err != nil || at < 0 {
			return nil, err
		}
		n = n.children[at].value
	}
	return nil, nil
}

// plain returns the value of a node without its comments: as json.Unmarshal would, with
// numbers as they are written.
func (d *jsonDoc) plain(n *node) any {
	switch n.kind {
	case '{':
		m := map[string]any{}
		for _, c := range n.children {
			m[c.key] = d.plain(c.value)
		}
		return m
	case '[':
		all := []any{}
		for _, c := range n.children {
			all = append(all, d.plain(c.value))
		}
		return all
	case '"':
		var s string
		_ = json.Unmarshal(d.text[n.from:n.to], &s) // str has read it before
		return s
	}
	switch word := string(d.text[n.from:n.to]); word {
	case "true", "false":
		return word == "true"
	case "null":
		return nil
	default:
		return json.Number(word)
	}
}
