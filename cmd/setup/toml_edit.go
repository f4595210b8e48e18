package setup

import (
	"bytes"
	"slices"
	"strings"
)

// find returns what stands at a path: nil, a *table, a tableArray or a value.
func (d *tomlDoc) find(path []string) any {
	var v any = d.root
	for _, name := range path {
		t, ok := v.(*table)
		if !ok {
			return nil
		}
		v = t.children[name]
	}
	return v
}

// where returns where a path is first spoken of.
func (d *tomlDoc) where(path []string) int {
	for _, s := range d.statements {
		if n := min(len(path), len(s.path)); slices.Equal(s.path[:n], path[:n]) && (s.header || len(s.path) >= len(path)) || slices.Equal(s.path, path) {
			return s.from
		}
	}
	return 0
}

// put adds a table at the end of the text. There must be none at its path.
func (d *tomlDoc) put(path []string, v Object) ([]byte, error) {
	for i := 1; i < len(path); i++ {
		switch t := d.find(path[:i]).(type) {
		case nil:
		case *table:
			if t.inline {
				return nil, errorAt(d.text, t.from, "%q is written as one value; write it as [%s.NAME] tables, then another one can be added", dotted(path[:i]), dotted(path[:i]))
			}
			if t.dotted {
				return nil, errorAt(d.text, t.from, "%q has its keys with dots; write it as [%s.NAME] tables, then another one can be added", dotted(path[:i]), dotted(path[:i]))
			}
		default:
			return nil, errorAt(d.text, d.where(path[:i]), "%q must be a table", dotted(path[:i]))
		}
	}
	end := lineEnd(d.text)
	text := string(d.text)
	if text != "" && text != byteOrderMark {
		if !strings.HasSuffix(text, "\n") {
			text += end
		}
		text += end
	}
	text += "[" + tomlPath(path) + "]" + end
	for _, f := range v {
		text += tomlKey(f.Name) + " = " + tomlValue(f.Value) + end
	}
	return []byte(text), nil
}

func tomlPath(path []string) string {
	var keys []string
	for _, name := range path {
		keys = append(keys, tomlKey(name))
	}
	return strings.Join(keys, ".")
}

func tomlKey(name string) string {
	if bareKey.FindString(name) == name && name != "" {
		return name
	}
	return tomlText(name)
}

func tomlValue(v any) string {
	var parts []string
	switch v := v.(type) {
	case Object:
		for _, f := range v {
			parts = append(parts, tomlKey(f.Name)+" = "+tomlValue(f.Value))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []any:
		for _, e := range v {
			parts = append(parts, tomlValue(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return tomlText(v)
	}
	return quoted(v)
}

// tomlText writes a string: as it is where that can be, which paths with backslashes like.
func tomlText(s string) string {
	plain := !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
	if plain && strings.Contains(s, `\`) && !strings.Contains(s, "'") {
		return "'" + s + "'"
	}
	return strings.ReplaceAll(quoted(s), "\x7f", `\u007f`)
}

// cut removes the table at a path, all below it, and one empty line before each piece.
func (d *tomlDoc) cut(path []string) []byte {
	text := d.text
	for i := len(d.statements) - 1; i >= 0; i-- {
		s := d.statements[i]
		if len(s.path) < len(path) || !slices.Equal(s.path[:len(path)], path) {
			continue
		}
		last := i
		for i > 0 && !d.statements[i].header && d.belongs(i-1, path) { // back to the header, with what stands between
			i--
		}
		from, to := d.statements[i].from, d.statements[last].to
		for _, end := range []string{"\r\n", "\n"} {
			before := text[:from]
			if d.statements[i].header && bytes.HasSuffix(before, []byte(end)) && (len(before) == len(end) || bytes.HasSuffix(before[:len(before)-len(end)], []byte("\n"))) {
				from -= len(end)
				break
			}
		}
		text = splice(text, from, to, "")
	}
	return text
}

// belongs tells whether a statement is of the table at a path.
func (d *tomlDoc) belongs(i int, path []string) bool {
	s := d.statements[i]
	return len(s.path) >= len(path) && slices.Equal(s.path[:len(path)], path)
}
