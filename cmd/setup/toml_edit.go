package setup

import (
	"regexp"
	"strings"
)

// where returns where a path is first spoken of.
func (d *tomlDoc) where(path []string) int {
	for _, s := range d.statements {
		if s.within(path) || s.around(path) {
			return s.from
		}
	}
	return 0
}

// pair returns the key and value that make the table at a path, or one around it, so that no header can add to
// it, or nil.
func (d *tomlDoc) pair(path []string) *statement {
	for i, s := range d.statements {
		if !s.header && s.table < len(path) && (s.within(path) || s.around(path)) {
			return &d.statements[i]
		}
	}
	return nil
}

// put adds a table at the end of the text. There must be none at its path.
func (d *tomlDoc) put(path []string, v Object) ([]byte, error) {
	const advice = "; write it as [%s.NAME] tables, then another one can be added"
	for i := 1; i < len(path); i++ {
		name := dotted(path[:i])
		switch d.find(path[:i]).(type) {
		case nil:
		case map[string]any:
			if s := d.pair(path[:i]); s != nil {
				how := "has its keys with dots"
				if s.around(path[:i]) {
					how = "is written as one value"
				}
				return nil, errorAt(d.text, s.from, "%q "+how+advice, name, name)
			}
		default:
			return nil, errorAt(d.text, d.where(path[:i]), "%q must be a table", name)
		}
	}
	end := lineEnd(d.text)
	text := d.mark + string(d.text)
	if len(d.text) > 0 {
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

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func tomlKey(name string) string {
	if bareKey.MatchString(name) {
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

var emptyLine = regexp.MustCompile(`(?:^|\n)(\r?\n)\z`)

// cut removes the table at a path, all below it, and one empty line before each piece.
func (d *tomlDoc) cut(path []string) []byte {
	text := d.text
	for i := len(d.statements) - 1; i >= 0; i-- {
		if !d.statements[i].within(path) {
			continue
		}
		last := i
		for i > 0 && !d.statements[i].header && d.statements[i-1].within(path) {
			i-- // back to the header, with what stands between
		}
		from, to := d.statements[i].from, d.statements[last].to
		if at := emptyLine.FindSubmatchIndex(text[:from]); at != nil && d.statements[i].header {
			from = at[2]
		}
		text = splice(text, from, to, "")
	}
	return append([]byte(d.mark), text...)
}
