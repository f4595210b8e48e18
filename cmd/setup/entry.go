package setup

import (
	"bytes"
	"reflect"
	"slices"

	"github.com/tailscale/hujson"
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
	// Ours reports whether a value is such an entry, though perhaps of another time.
	Ours func(value any) bool
}

// merge adds our entries to a text that has none of them. made are the paths of objects and arrays
// that were missing; nil in it is the whole text.
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
		return nil, taken(d.text, d.where(path), path)
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
	at, err := d.walk(e.Path, '{')
	if err != nil {
		return nil, nil, err
	}
	if at != nil {
		i, err := d.find(at, e.Key)
		if err != nil {
			return nil, nil, err
		}
		if i >= 0 {
			name := at.Value.(*hujson.Object).Members[i].Name
			return nil, nil, taken(d.text, name.StartOffset, append(slices.Clone(e.Path), e.Key))
		}
	}
	return d.put(e.Path, e.Key, e.Value)
}

// taken is the error for an entry of somebody else that has our name.
func taken(text []byte, offset int, path []string) error {
	const advice = "remove or rename it, or choose another --name"
	return errorAt(text, offset, "%q is there already, and is not the relay's; "+advice, dotted(path))
}

// has reports whether the entries are in the text as they should be.
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
		return reflect.DeepEqual(d.find(append(slices.Clone(e.Path), e.Key)), want), nil
	}
	found := 0
	same := true
	err := eachOurs(f, text, e, func(_ *jsonDoc, _ *hujson.Value, _ int, v *hujson.Value) []byte {
		found++
		same = same && reflect.DeepEqual(plain(v), want)
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
	if s := d.pair(path); !e.Ours(d.find(path)) || s != nil && s.around(path) {
		return text, nil
	}
	after := d.cut(path)
	_, err = parseTOML(after) // so that no fault of ours reaches the file
	return after, err
}

func stripJSON(f Format, text []byte, e Entry) ([]byte, error) {
	for {
		var after []byte
		err := eachOurs(f, text, e, func(d *jsonDoc, at *hujson.Value, i int, _ *hujson.Value) []byte {
			after = d.cut(at, i)
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

// seeEntry is called for an entry that is ours: the child i of an object or array, whose value is v.
type seeEntry func(d *jsonDoc, at *hujson.Value, i int, v *hujson.Value) []byte

// eachOurs calls see for each entry that is ours, until see returns a text. A group with nothing but such an entry goes
// as a whole.
func eachOurs(f Format, text []byte, e Entry, see seeEntry) error {
	d, err := parseJSON(text, f == JSONC)
	if err != nil {
		return err
	}
	kind := hujson.Kind('{')
	if e.Key == "" {
		kind = '['
	}
	at, err := d.walk(e.Path, kind)
	if err != nil || at == nil {
		return err
	}
	if e.Key == "" {
		return d.eachInGroups(at, e, see)
	}
	i, err := d.find(at, e.Key)
	if err != nil || i < 0 {
		return err
	}
	if v := listOf(at).value(i); e.Ours(plain(v)) {
		see(d, at, i, v)
	}
	return nil
}

func (d *jsonDoc) eachInGroups(at *hujson.Value, e Entry, see seeEntry) error {
	groups := listOf(at)
	for g := range groups.len() {
		group := groups.value(g)
		if group.Value.Kind() != '{' {
			continue
		}
		i, err := d.find(group, e.Group)
		if err != nil {
			return err
		}
		if i < 0 || listOf(group).value(i).Value.Kind() != '[' {
			continue
		}
		entries := listOf(group).value(i)
		inner := listOf(entries)
		for i := range inner.len() {
			v := inner.value(i)
			if !e.Ours(plain(v)) {
				continue
			}
			place, index := entries, i
			if inner.len() == 1 {
				place, index = at, g
			}
			if see(d, place, index, v) != nil {
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
			if d.empty(d.root) && len(bytes.TrimSpace(d.text)) == d.root.EndOffset-d.root.StartOffset {
				return nil, nil
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
		if d.empty(listOf(parent).value(i)) {
			text = d.cut(parent, i)
		}
	}
	_, err := parseJSON(text, f == JSONC)
	return text, err
}
