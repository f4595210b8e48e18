package setup

import (
	"bytes"
	"reflect"
	"slices"
)

// Format is how a configuration file is written.
type Format int

// The formats. JSONC is JSON with comments and trailing commas.
const (
	JSON Format = iota
	JSONC
	TOML
)

// Entry is what a program's configuration gets.
type Entry struct {
	// Path leads to the object that gets the entry, or to the array.
	Path []string
	// Key is the entry's name in the object. It is "" in an array, whose elements are
	// groups: objects whose field Group is an array of entries like this one.
	Key, Group string
	Value      Object
	// Ours tells whether a value is such an entry, though perhaps of another time.
	Ours func(value any) bool
}

// merge adds entries to a text in which there are none of ours. made are the paths of
// objects and arrays that were missing; nil in it is the whole text.
func merge(f Format, text []byte, entries []Entry) (after []byte, made [][]string, err error) {
	for _, e := range entries {
		var more [][]string
		if f == TOML {
			text, err = mergeTOML(text, e)
		} else {
			text, more, err = mergeJSON(f, text, e)
		}
		if err != nil {
			return nil, nil, err
		}
		made = append(made, more...)
	}
	return text, made, nil
}

func mergeTOML(text []byte, e Entry) ([]byte, error) {
	d, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	path := append(slices.Clone(e.Path), e.Key)
	if d.find(path) != nil {
		return nil, errorAt(text, d.where(path), "%q is there already, and is not the relay's; remove or rename it, or choose another --name", dotted(path))
	}
	return d.put(path, e.Value)
}

func mergeJSON(f Format, text []byte, e Entry) ([]byte, [][]string, error) {
	d, err := parseJSON(text, f == JSONC)
	if err != nil {
		return nil, nil, err
	}
	if e.Key == "" {
		return d.put(e.Path, "", Object{{e.Group, []any{e.Value}}})
	}
	n, err := d.walk(e.Path, '{')
	if err != nil {
		return nil, nil, err
	}
	if n != nil {
		i, err := d.find(n, e.Key)
		if err != nil {
			return nil, nil, err
		}
		if i >= 0 {
			return nil, nil, errorAt(text, n.children[i].from, "%q is there already, and is not the relay's; remove or rename it, or choose another --name", dotted(append(slices.Clone(e.Path), e.Key)))
		}
	}
	return d.put(e.Path, e.Key, e.Value)
}

// has tells whether the entries are in the text as they should be.
func has(f Format, text []byte, entries []Entry) (bool, error) {
	for _, e := range entries {
		ok, err := hasOne(f, text, e)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func hasOne(f Format, text []byte, e Entry) (bool, error) {
	want := plainOf(e.Value)
	if f == TOML {
		d, err := parseTOML(text)
		if err != nil {
			return false, err
		}
		return reflect.DeepEqual(plainTOML(d.find(append(slices.Clone(e.Path), e.Key))), want), nil
	}
	found := 0
	same := true
	err := eachOurs(f, text, e, func(d *jsonDoc, _ *node, _ int, v *node) []byte {
		found++
		same = same && reflect.DeepEqual(d.plain(v), want)
		return nil
	})
	return found == 1 && same, err
}

// strip takes our entries out of a text, and those of the paths in made that are empty
// then. It returns nil if nothing is left of a text that was made whole.
func strip(f Format, text []byte, entries []Entry, made [][]string) (after []byte, err error) {
	for i := len(entries) - 1; i >= 0; i-- {
		e := entries[i]
		if f == TOML {
			text, err = stripTOML(text, e)
		} else {
			text, err = stripJSON(f, text, e)
		}
		if err != nil {
			return nil, err
		}
	}
	if f == TOML {
		return text, nil
	}
	return prune(f, text, made)
}

func stripTOML(text []byte, e Entry) ([]byte, error) {
	d, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	path := append(slices.Clone(e.Path), e.Key)
	t, ok := d.find(path).(*table)
	if !ok || t.inline || !e.Ours(plainTOML(t)) {
		return text, nil
	}
	after := d.cut(path)
	_, err = parseTOML(after) // so that no fault of ours reaches the file
	return after, err
}

func stripJSON(f Format, text []byte, e Entry) ([]byte, error) {
	for {
		var after []byte
		err := eachOurs(f, text, e, func(d *jsonDoc, n *node, i int, _ *node) []byte {
			after = d.cut(n, i)
			return after
		})
		if err != nil || after == nil {
			return text, err
		}
		if _, err := parseJSON(after, f == JSONC); err != nil { // so that no fault of ours reaches the file
			return nil, err
		}
		text = after
	}
}

// eachOurs calls see for each entry that is ours, with its place in its object or array,
// until see returns a text. A group with nothing but such an entry goes as a whole.
func eachOurs(f Format, text []byte, e Entry, see func(d *jsonDoc, n *node, i int, v *node) []byte) error {
	d, err := parseJSON(text, f == JSONC)
	if err != nil || d.root == nil {
		return err
	}
	kind := byte('{')
	if e.Key == "" {
		kind = '['
	}
	n, err := d.walk(e.Path, kind)
	if err != nil || n == nil {
		return err
	}
	if e.Key != "" {
		i, err := d.find(n, e.Key)
		if err == nil && i >= 0 && e.Ours(d.plain(n.children[i].value)) {
			see(d, n, i, n.children[i].value)
		}
		return err
	}
	for g, group := range n.children {
		if group.value.kind != '{' {
			continue
		}
		at, err := d.find(group.value, e.Group)
		if err != nil {
			return err
		}
		if at < 0 || group.value.children[at].value.kind != '[' {
			continue
		}
		inner := group.value.children[at].value
		for i, c := range inner.children {
			if !e.Ours(d.plain(c.value)) {
				continue
			}
			place, index := inner, i
			if len(inner.children) == 1 {
				place, index = n, g
			}
			if see(d, place, index, c.value) != nil {
				return nil
			}
		}
	}
	return nil
}

// prune removes what was made for our entries and is empty now, the inner before the outer.
func prune(f Format, text []byte, made [][]string) ([]byte, error) {
	made = slices.Clone(made)
	slices.SortStableFunc(made, func(a, b []string) int { return len(b) - len(a) })
	for _, path := range made {
		d, err := parseJSON(text, f == JSONC)
		if err != nil || d.root == nil {
			return text, err
		}
		if len(path) == 0 {
			if d.empty(d.root) {
				rest := splice(text, d.root.from, d.root.to, "")
				if len(bytes.TrimSpace(bytes.TrimPrefix(rest, []byte(byteOrderMark)))) == 0 {
					return nil, nil
				}
			}
			continue
		}
		parent, err := d.walk(path[:len(path)-1], '{')
		if err != nil || parent == nil {
			continue // somebody has put something else there
		}
		i, err := d.find(parent, path[len(path)-1])
		if err != nil || i < 0 {
			continue
		}
		if v := parent.children[i].value; (v.kind == '{' || v.kind == '[') && d.empty(v) {
			text = d.cut(parent, i)
		}
	}
	_, err := parseJSON(text, f == JSONC)
	return text, err
}
