package setup

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
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
	if d.root == nil {
		return l
	}
	n := listOf(d.root)
	if n == nil || n.len() == 0 {
		return l
	}
	if bytes.IndexByte(d.text[d.root.StartOffset:d.root.EndOffset], '\n') < 0 {
		l.oneLine = true
	} else if indent, begins := beginsLine(*n.before(0)); begins && indent != "" {
		if unit := strings.TrimPrefix(indent, indentAt(d.text, d.root.StartOffset)); unit != "" {
			l.unit = unit
		}
	}
	return l
}

// put adds a value to the object or array at a path, which it makes if it is missing.
// key is the value's name in an object, "" in an array. made are the paths that were
// missing.
func (d *jsonDoc) put(path []string, key string, v any) (text []byte, made [][]string, err error) {
	kind := hujson.Kind('{')
	if key == "" {
		kind = '['
	}
	if d.root == nil {
		return d.fill(path, key, v)
	}
	at, err := d.walk(path, kind)
	if err != nil {
		return nil, nil, err
	}
	rest := len(path)
	for at == nil { // add the objects that are missing
		rest--
		made = append(made, path[:rest+1])
		if kind == '[' {
			v = []any{v}
		} else {
			v = Object{{key, v}}
		}
		kind, key = '{', path[rest]
		if at, err = d.walk(path[:rest], '{'); err != nil {
			return nil, nil, err
		}
	}
	d.add(at, key, v)
	return d.pack(), made, nil
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
	if before != "" && !strings.HasSuffix(before, "\n") {
		before += l.lineEnd
	}
	return []byte(d.mark + before + l.render(v, "") + l.lineEnd), append(made, nil), nil
}

// add puts a child at the end of an object or array. Comments in the line of the last child stay with it.
func (d *jsonDoc) add(at *hujson.Value, name string, v any) {
	n, l := listOf(at), d.layoutOf()
	if n.len() == 0 {
		d.addFirst(at, l, name, v)
		return
	}
	var comma hujson.Extra // nil, but if hujson is to write a comma at the end
	last := n.value(n.len() - 1)
	if last.AfterExtra != nil {
		comma = hujson.Extra{}
	}
	if bytes.IndexByte(d.text[at.StartOffset:last.StartOffset], '\n') < 0 { // all on one line
		l.oneLine = true
		n.add(name, hujson.Extra(" "), hujson.Value{Value: hujson.Literal(l.render(v, "")), AfterExtra: comma})
		return
	}
	indent := indentAt(d.text, at.StartOffset) + l.unit
	for i := range n.len() {
		if of, begins := beginsLine(*n.before(i)); begins {
			indent = of
			break
		}
	}
	gap := n.before(n.len())
	stays := lineCommentsEnd(*gap)
	before := slices.Concat((*gap)[:stays], hujson.Extra(l.lineEnd+indent))
	*gap = (*gap)[stays:]
	n.add(name, before, hujson.Value{Value: hujson.Literal(l.render(v, indent)), AfterExtra: comma})
}

// addFirst puts a child into an empty object or array, below the comments in it.
func (d *jsonDoc) addFirst(at *hujson.Value, l layout, name string, v any) {
	n, outer := listOf(at), indentAt(d.text, at.StartOffset)
	gap := n.before(0)
	end, _ := commentsEnd(*gap)
	before, after := (*gap)[:end], (*gap)[end:]
	if l.oneLine {
		*gap = nil
		n.add(name, before, hujson.Value{Value: hujson.Literal(l.render(v, ""))})
		return
	}
	if end == 0 || bytes.IndexByte(after, '\n') < 0 {
		after = hujson.Extra(l.lineEnd + outer)
	}
	*gap = after
	indent := outer + l.unit
	before = slices.Concat(before, hujson.Extra(l.lineEnd+indent))
	n.add(name, before, hujson.Value{Value: hujson.Literal(l.render(v, indent))})
}

// beginsLine returns the white space with which a line begins, and reports whether what follows gap is the first in it.
func beginsLine(gap hujson.Extra) (indent string, begins bool) {
	i := bytes.LastIndexByte(gap, '\n')
	if i < 0 || len(bytes.Trim(gap[i:], " \t\n")) > 0 {
		return "", false
	}
	return string(gap[i+1:]), true
}

// commentsEnd returns where the last comment of a gap ends, or 0, and whether only a line end can end it.
// Spaces at its end are part of it.
func commentsEnd(gap hujson.Extra) (end int, line bool) {
	for _, at := range jsonComment.FindAllIndex(gap, -1) {
		end, line = commentEnd(gap, at), gap[at[0]+1] == '/'
	}
	return end, line
}

// commentEnd returns where a comment ends: before its line end.
func commentEnd(gap hujson.Extra, at []int) int {
	return at[0] + len(bytes.TrimRight(gap[at[0]:at[1]], "\r"))
}

// lineCommentsEnd returns where the comments of a gap end that begin in its first line: they belong to the text
// before them.
func lineCommentsEnd(gap hujson.Extra) (end int) {
	for _, at := range jsonComment.FindAllIndex(gap, -1) {
		if len(bytes.Trim(gap[end:at[0]], " \t")) > 0 {
			break
		}
		end = commentEnd(gap, at)
	}
	return end
}

// cut removes a child. The comments before and behind it stay.
func (d *jsonDoc) cut(at *hujson.Value, i int) []byte {
	n := listOf(at)
	v, before, next := n.value(i), *n.before(i), n.before(i+1)
	end, line := commentsEnd(before)
	rest := *next
	if len(bytes.TrimSpace(v.AfterExtra)) > 0 { // comments before the comma
		rest = slices.Concat(v.AfterExtra, rest)
	}
	if line && !bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r"), []byte("\n")) {
		end = len(before) // with the line end that ends the comment
	}
	*next = slices.Concat(before[:end], rest)
	if i == n.len()-1 && i > 0 {
		if previous := n.value(i - 1); v.AfterExtra == nil {
			*next = slices.Concat(previous.AfterExtra, *next)
			previous.AfterExtra = nil
		} else if previous.AfterExtra == nil {
			previous.AfterExtra = hujson.Extra{}
		}
	}
	n.remove(i)
	if d.empty(at) {
		*n.before(0) = nil
	}
	return d.pack()
}

// empty reports whether a value is an object or array with neither children nor comments.
func (d *jsonDoc) empty(at *hujson.Value) bool {
	n := listOf(at)
	return n != nil && n.len() == 0 && len(bytes.TrimSpace(*n.before(0))) == 0
}
