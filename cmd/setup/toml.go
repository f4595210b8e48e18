package setup

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// tomlDoc is a TOML text, and where its statements stand. It is read as strictly as its
// programs do in what matters here: every table and every key is there once.
type tomlDoc struct {
	text       []byte
	statements []statement
	at         int // the parser's place
	root       *table
	open       *table // of the last header
	openPath   []string
}

// statement is a header, or a key with its value, from the first character of its line to
// the end of that in which it ends.
type statement struct {
	header   bool
	path     []string // from the root
	from, to int
}

// table is what a TOML text says so far about a table, for finding what stands twice.
type table struct {
	from     int
	children map[string]any // *table, tableArray, or a value
	header   bool           // a header has defined it
	dotted   bool           // dotted keys have made it
	inline   bool           // nothing can be added to it any more
}

type tableArray []*table

func newTable(from int) *table { return &table{from: from, children: map[string]any{}} }

// parseTOML reads a text. Errors are ParseErrors.
func parseTOML(text []byte) (*tomlDoc, error) {
	d := &tomlDoc{text: text, root: newTable(0)}
	d.open = d.root
	var err error
	if d.at, err = start(text); err != nil {
		return nil, err
	}
	for {
		d.blank(true)
		if d.at == len(text) {
			return d, nil
		}
		if d.peek() != '#' {
			if err := d.statement(); err != nil {
				return nil, err
			}
		}
		if err := d.comment(); err != nil {
			return nil, err
		}
	}
}

func (d *tomlDoc) fault(format string, args ...any) error {
	return errorAt(d.text, d.at, format, args...)
}

func (d *tomlDoc) peek() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

// blank passes spaces and tabs, and line ends if lines is set.
func (d *tomlDoc) blank(lines bool) {
	for d.at < len(d.text) {
		c := d.text[d.at]
		ends := c == '\n' || c == '\r' && bytes.HasPrefix(d.text[d.at:], []byte("\r\n"))
		if c != ' ' && c != '\t' && (!lines || !ends) {
			return
		}
		d.at++
	}
}

// comment passes what may stand behind a statement: a comment, and then the end of the line.
func (d *tomlDoc) comment() error {
	d.blank(false)
	if d.peek() == '#' {
		text := d.text[d.at:] // without a line end, a \r at the end belongs to the comment
		n := len(text)
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text, n = bytes.TrimSuffix(text[:i], []byte("\r")), i
		}
		for i, c := range text {
			if c < ' ' && c != '\t' || c == 0x7f {
				d.at += i
				return d.fault("a comment has a control character")
			}
		}
		d.at += n
	}
	if rest := d.text[d.at:]; len(rest) > 0 && rest[0] != '\n' && !bytes.HasPrefix(rest, []byte("\r\n")) {
		return d.fault("the line must end here")
	}
	return nil
}

func (d *tomlDoc) statement() error {
	from := bytes.LastIndexByte(d.text[:d.at], '\n') + 1
	if from == 0 && bytes.HasPrefix(d.text, []byte(byteOrderMark)) {
		from = len(byteOrderMark)
	}
	s := statement{from: from, header: d.peek() == '['}
	var err error
	if s.header {
		s.path, err = d.head()
	} else {
		s.path, err = d.pair(d.open, true, 0)
		s.path = append(slices.Clone(d.openPath), s.path...)
	}
	if n := bytes.IndexByte(d.text[d.at:], '\n'); n >= 0 {
		s.to = d.at + n + 1
	} else {
		s.to = len(d.text)
	}
	d.statements = append(d.statements, s)
	return err
}

// head reads [table] or [[table]].
func (d *tomlDoc) head() ([]string, error) {
	from := d.at
	d.at++
	array := d.peek() == '['
	end := "]"
	if array {
		d.at++
		end = "]]"
	}
	path, err := d.key()
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(d.text[d.at:], []byte(end)) {
		return nil, d.fault("%s belongs here", end)
	}
	d.at += len(end)
	t := d.root
	for _, name := range path[:len(path)-1] {
		switch next := t.children[name].(type) {
		case nil:
			made := newTable(from)
			t.children[name], t = made, made
		case *table:
			t = next
		case tableArray:
			t = next[len(next)-1]
		default:
			return nil, errorAt(d.text, from, "%q has a value and is no table", name)
		}
		if t.inline {
			return nil, errorAt(d.text, from, "%q is closed: its table is written in one piece", name)
		}
	}
	last := path[len(path)-1]
	was := t.children[last]
	if array {
		all, ok := was.(tableArray)
		if was != nil && !ok {
			return nil, errorAt(d.text, from, "%q is there already, and not as an array of tables", dotted(path))
		}
		d.open = newTable(from)
		t.children[last] = append(all, d.open)
	} else {
		there, ok := was.(*table)
		switch {
		case was == nil:
			there = newTable(from)
			t.children[last] = there
		case !ok || there.header || there.dotted || there.inline:
			return nil, errorAt(d.text, from, "the table %q is there already", dotted(path))
		}
		there.header = true
		d.open = there
	}
	d.openPath = path
	return path, nil
}

// pair reads key = value into a table. dots tells that the keys of a dotted name make
// tables; depth is how deep the value is.
func (d *tomlDoc) pair(into *table, dots bool, depth int) ([]string, error) {
	from := d.at
	path, err := d.key()
	if err != nil {
		return nil, err
	}
	if d.peek() != '=' {
		return nil, d.fault("= belongs here")
	}
	d.at++
	d.blank(false)
	v, err := d.value(depth)
	if err != nil {
		return nil, err
	}
	t := into
	for _, name := range path[:len(path)-1] {
		next, ok := t.children[name].(*table)
		if t.children[name] == nil {
			next, ok = newTable(from), true
			next.dotted = dots
			t.children[name] = next
		}
		if !ok || next.inline || next.header {
			return nil, errorAt(d.text, from, "%q cannot get another key here", name)
		}
		t = next
	}
	last := path[len(path)-1]
	if _, there := t.children[last]; there {
		return nil, errorAt(d.text, from, "the key %q is there already", dotted(path))
	}
	if inner, ok := v.(*table); ok {
		inner.from = from
	}
	t.children[last] = v
	return path, nil
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+`)

// key reads a name, which may have dots.
func (d *tomlDoc) key() (path []string, err error) {
	for {
		d.blank(false)
		var name string
		switch c := d.peek(); {
		case c == '"' || c == '\'':
			if bytes.HasPrefix(d.text[d.at:], []byte(strings.Repeat(string(c), 3))) {
				return nil, d.fault("a key cannot have several lines")
			}
			if name, err = d.str(); err != nil {
				return nil, err
			}
		default:
			m := bareKey.Find(d.text[d.at:])
			if m == nil {
				return nil, d.fault("a key belongs here")
			}
			name = string(m)
			d.at += len(m)
		}
		path = append(path, name)
		d.blank(false)
		if d.peek() != '.' {
			return path, nil
		}
		d.at++
	}
}

// A word is a number, a date or a bool. These forms are wide: nothing here depends on
// the values.
var tomlWord = regexp.MustCompile(`^(?:true|false|[+-]?(?:inf|nan)|0x[0-9A-Fa-f_]+|0o[0-7_]+|0b[01_]+|` +
	`[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})?)?|` +
	`[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?|[+-]?[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9_]+)?)`)

// tomlNumber is a value that is no text, table or array, as it is written.
type tomlNumber string

// value reads a value: a string, a tomlNumber, a []any or a closed *table.
func (d *tomlDoc) value(depth int) (any, error) {
	if depth > mostDepth {
		return nil, d.fault("the nesting is too deep")
	}
	switch d.peek() {
	case '"', '\'':
		return d.str()
	case '[':
		return d.array(depth)
	case '{':
		return d.inline(depth)
	}
	m := tomlWord.Find(d.text[d.at:])
	if m == nil || wordPart.Match(d.text[d.at+len(m):]) {
		return nil, d.fault("this is not a TOML value")
	}
	d.at += len(m)
	return tomlNumber(m), nil
}

// gap passes white space, line ends and comments in an array or table.
func (d *tomlDoc) gap() error {
	for {
		d.blank(true)
		if d.peek() != '#' {
			return nil
		}
		if err := d.comment(); err != nil {
			return err
		}
	}
}

func (d *tomlDoc) array(depth int) (any, error) {
	all := []any{}
	err := d.list(']', func() error {
		v, err := d.value(depth + 1)
		all = append(all, v)
		return err
	})
	return all, err
}

func (d *tomlDoc) inline(depth int) (any, error) {
	t := newTable(d.at)
	err := d.list('}', func() error {
		_, err := d.pair(t, false, depth+1)
		return err
	})
	closeTable(t)
	return t, err
}

// closeTable marks a table that was written in one piece, and those in it.
func closeTable(t *table) {
	t.inline = true
	for _, c := range t.children {
		if inner, ok := c.(*table); ok && !inner.inline {
			closeTable(inner)
		}
	}
}

// list reads what stands between commas up to end.
func (d *tomlDoc) list(end byte, one func() error) error {
	open := d.at
	d.at++
	for {
		if err := d.gap(); err != nil {
			return err
		}
		if d.peek() == end {
			d.at++
			return nil
		}
		if d.at == len(d.text) {
			d.at = open
			return d.fault("%q has no %q", d.text[open], end)
		}
		if err := one(); err != nil {
			return err
		}
		if err := d.gap(); err != nil {
			return err
		}
		switch d.peek() {
		case ',':
			d.at++
		case end:
		default:
			if d.at == len(d.text) {
				d.at = open
				return d.fault("%q has no %q", d.text[open], end)
			}
			return d.fault("a comma or %q belongs here", end)
		}
	}
}

// plainTOML is a value as Go has it: tables are maps.
func plainTOML(v any) any {
	switch v := v.(type) {
	case *table:
		m := map[string]any{}
		for k, c := range v.children {
			m[k] = plainTOML(c)
		}
		return m
	case tableArray:
		all := []any{}
		for _, t := range v {
			all = append(all, plainTOML(t))
		}
		return all
	case []any:
		all := []any{}
		for _, e := range v {
			all = append(all, plainTOML(e))
		}
		return all
	}
	return v
}
