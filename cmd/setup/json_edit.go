package setup

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Object is a JSON object or a TOML table whose fields keep their order.
type Object []Field

// Field is a field of an Object. A value is a string, a bool, an int, an Object, or a
// []any of them.
type Field struct {
	Name  string
	Value any
}

// plainOf is what a parser would make of a value.
func plainOf(v any) any {
	switch v := v.(type) {
	case Object:
		m := map[string]any{}
		for _, f := range v {
			m[f.Name] = plainOf(f.Value)
		}
		return m
	case []any:
		all := []any{}
		for _, e := range v {
			all = append(all, plainOf(e))
		}
		return all
	case int:
		return json.Number(quoted(v))
	}
	return v
}

// quoted writes a string, a bool or an int, with < and > as they are.
func quoted(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // these always can be
	return strings.TrimSuffix(b.String(), "\n")
}

// layout is how JSON is written: on lines of their own, or on one.
type layout struct {
	lineEnd, unit string
	oneLine       bool
}

// render writes a value whose line is indented so far.
func (l layout) render(v any, indent string) string {
	var parts []string
	open, end := "{", "}"
	inner := indent + l.unit
	switch v := v.(type) {
	case Object:
		for _, f := range v {
			parts = append(parts, quoted(f.Name)+": "+l.render(f.Value, inner))
		}
	case []any:
		open, end = "[", "]"
		short := true
		for _, e := range v {
			_, isText := e.(string)
			short = short && isText
		}
		if short {
			l.oneLine = true
		}
		for _, e := range v {
			parts = append(parts, l.render(e, inner))
		}
	default:
		return quoted(v)
	}
	if l.oneLine {
		return open + strings.Join(parts, ", ") + end
	}
	between := l.lineEnd + inner
	return open + between + strings.Join(parts, ","+between) + l.lineEnd + indent + end
}

// layoutOf is how a document is written.
func (d *jsonDoc) layoutOf() layout {
	l := layout{lineEnd: lineEnd(d.text), unit: "  "}
	if d.root == nil || len(d.root.children) == 0 {
		return l
	}
	first := d.root.children[0].from
	switch {
	case bytes.IndexByte(d.text[d.root.from:d.root.to], '\n') < 0:
		l.oneLine = true
	case beginsLine(d.text, first) && indentAt(d.text, first) != "":
		l.unit = strings.TrimPrefix(indentAt(d.text, first), indentAt(d.text, d.root.from))
		if l.unit == "" {
			l.unit = "  "
		}
	}
	return l
}

// put adds a value to the object or array at a path, which it makes if it is missing.
// key is the value's name in an object, "" in an array. made are the paths that were
// missing.
func (d *jsonDoc) put(path []string, key string, v any) (text []byte, made [][]string, err error) {
	kind := byte('{')
	if key == "" {
		kind = '['
	}
	if d.root == nil {
		return d.fill(path, key, v)
	}
	n, err := d.walk(path, kind)
	if err != nil {
		return nil, nil, err
	}
	rest := len(path)
	for n == nil { // add the objects that are missing
		rest--
		made = append(made, path[:rest+1])
		if kind == '[' {
			v = []any{v}
		} else {
			v = Object{{key, v}}
		}
		kind, key = '{', path[rest]
		if n, err = d.walk(path[:rest], '{'); err != nil {
			return nil, nil, err
		}
	}
	return d.add(n, key, v), made, nil
}

// fill writes the text of a file that has nothing but white space and comments.
func (d *jsonDoc) fill(path []string, key string, v any) (text []byte, made [][]string, err error) {
	if key == "" {
		v = []any{v}
	} else {
		v = Object{{key, v}}
	}
	for i := len(path) - 1; i >= 0; i-- {
		made = append(made, path[:i+1])
		v = Object{{path[i], v}}
	}
	before := string(d.text)
	l := d.layoutOf()
	if before != "" && before != byteOrderMark && !strings.HasSuffix(before, "\n") {
		before += l.lineEnd
	}
	return []byte(before + l.render(v, "") + l.lineEnd), append(made, nil), nil
}

// add puts a child at the end of an object or array.
func (d *jsonDoc) add(n *node, key string, v any) []byte {
	l := d.layoutOf()
	name := ""
	if key != "" {
		name = quoted(key) + ": "
	}
	if len(n.children) == 0 {
		return d.addFirst(n, l, name, v)
	}
	last := n.children[len(n.children)-1]
	after := last.value.to
	if last.comma >= 0 {
		after = last.comma + 1
	}
	if bytes.IndexByte(d.text[n.from:last.from], '\n') < 0 { // all on one line
		l.oneLine = true
		comma, end := ", ", ""
		if last.comma >= 0 {
			comma, end = " ", ","
		}
		return splice(d.text, after, after, comma+name+l.render(v, "")+end)
	}
	indent := indentAt(d.text, n.from) + l.unit
	for _, c := range n.children {
		if beginsLine(d.text, c.from) {
			indent = indentAt(d.text, c.from)
			break
		}
	}
	child := l.lineEnd + indent + name + l.render(v, indent)
	at := d.pastComments(after)
	if last.comma >= 0 {
		return splice(d.text, at, at, child+",")
	}
	return splice(splice(d.text, at, at, child), after, after, ",")
}

// addFirst puts a child into an empty object or array, below the comments in it.
func (d *jsonDoc) addFirst(n *node, l layout, name string, v any) []byte {
	from := d.behind(n.to - 1)
	if l.oneLine {
		return splice(d.text, from, n.to-1, name+l.render(v, ""))
	}
	outer := indentAt(d.text, n.from)
	indent := outer + l.unit
	tail := l.lineEnd + outer
	return splice(d.text, from, n.to-1, l.lineEnd+indent+name+l.render(v, indent)+tail)
}

// behind returns where the white space before an offset begins. Spaces at the end of a
// comment are part of it.
func (d *jsonDoc) behind(at int) int {
	from := len(bytes.TrimRight(d.text[:at], " \t\r\n"))
	for _, c := range d.comments {
		if c.to <= at {
			from = max(from, c.to)
		}
	}
	return from
}

// pastComments returns where the comments end that begin in the line of an offset, after
// it: they belong to what stands before them.
func (d *jsonDoc) pastComments(at int) int {
	for {
		gap := len(d.text[at:]) - len(bytes.TrimLeft(d.text[at:], " \t"))
		next := at
		for _, c := range d.comments {
			if c.from == at+gap {
				next = c.to
			}
		}
		if next == at {
			return at
		}
		at = next
	}
}

// cut removes a child.
func (d *jsonDoc) cut(n *node, i int) []byte {
	c := n.children[i]
	from := d.behind(c.from)
	to := c.value.to
	if c.comma >= 0 {
		to = c.comma + 1
	}
	text := d.text
	if rest := bytes.TrimLeft(text[to:], " \t"); !bytes.HasPrefix(rest, []byte("\n")) && !bytes.HasPrefix(rest, []byte("\r\n")) {
		for _, s := range d.comments {
			if s.line && s.to == from { // its line end must stay
				from = c.from
			}
		}
	}
	if c.comma >= 0 && c.comma > c.value.to { // comments stand before the comma
		between := bytes.TrimSpace(text[c.value.to:c.comma])
		if len(between) > 0 {
			text = splice(text, c.comma, c.comma+1, "")
			to = c.value.to
		}
	}
	if len(n.children) == 1 && len(bytes.TrimSpace(text[n.from+1:from])) == 0 && len(bytes.TrimSpace(text[to:n.to-1])) == 0 && len(text) == len(d.text) {
		return splice(text, n.from+1, n.to-1, "")
	}
	text = splice(text, from, to, "")
	if i == len(n.children)-1 && i > 0 && c.comma < 0 {
		text = splice(text, n.children[i-1].comma, n.children[i-1].comma+1, "")
	}
	return text
}

// empty tells whether an object or array has neither children nor comments.
func (d *jsonDoc) empty(n *node) bool {
	return len(bytes.TrimSpace(d.text[n.from+1:n.to-1])) == 0
}
