package setup

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	toml "github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlDoc is a TOML text, its values, and where its statements stand.
type tomlDoc struct {
	mark       string // the byte order mark before text, or ""
	text       []byte
	root       map[string]any
	statements []statement
}

// statement is a header, or a key with its value, from the first character of its line to
// the end of that in which it ends.
type statement struct {
	header   bool
	path     []string // from the root
	table    int      // how many names of path come from the header above a key
	from, to int
}

// parseTOML reads a text. Errors are ParseErrors.
func parseTOML(text []byte) (*tomlDoc, error) {
	mark, text, err := start(text)
	if err != nil {
		return nil, err
	}
	d := &tomlDoc{mark: mark, text: text, root: map[string]any{}}
	var fault *toml.DecodeError
	if err := toml.Unmarshal(text, &d.root); errors.As(err, &fault) {
		line, column := fault.Position()
		return nil, errorAt(text, offsetOf(text, line, column), "%s", strings.TrimPrefix(fault.Error(), "toml: "))
	} else if err != nil {
		return nil, errorAt(text, 0, "%v", err)
	}
	var table []string // of the last header
	p := unstable.Parser{}
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		s := statement{header: e.Kind != unstable.KeyValue}
		at := e.Raw
		for keys := e.Key(); keys.Next(); {
			if s.header {
				at = keys.Node().Raw
			}
			s.path = append(s.path, string(keys.Node().Data))
		}
		if s.header {
			table = s.path
		} else {
			s.table, s.path = len(table), slices.Concat(table, s.path)
		}
		s.from = bytes.LastIndexByte(text[:at.Offset], '\n') + 1
		s.to = len(text)
		if n := bytes.IndexByte(text[at.Offset+at.Length:], '\n'); n >= 0 {
			s.to = int(at.Offset+at.Length) + n + 1
		}
		d.statements = append(d.statements, s)
	}
	return d, p.Error()
}

// find returns the value at a path: nil, a table as a map, or another value.
func (d *tomlDoc) find(path []string) any {
	var v any = d.root
	for _, name := range path {
		t, _ := v.(map[string]any)
		v = t[name]
	}
	return v
}

// within reports whether a statement speaks of the table or value at a path, or of what is in it.
func (s statement) within(path []string) bool {
	return len(s.path) >= len(path) && slices.Equal(s.path[:len(path)], path)
}

// around reports whether a statement is a key whose value is at a path, or has it inside.
func (s statement) around(path []string) bool {
	return !s.header && len(s.path) <= len(path) && slices.Equal(s.path, path[:len(s.path)])
}
