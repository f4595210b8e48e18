package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tailscale/hujson"
)

// jsonDoc is a JSON text and its tree. The tree has every byte of the text; offsets in it are those in text.
type jsonDoc struct {
	mark string // the byte order mark before text, or ""
	text []byte
	root *hujson.Value // nil: there is only white space, and comments
}

// maxDepth is how deep a text may be nested: hujson calls itself for each level, and has no limit.
const maxDepth = 200

var (
	jsonComment  = regexp.MustCompile(`//[^\n]*|(?s:/\*.*?\*/)`)
	firstComment = regexp.MustCompile(`^(?:` + jsonComment.String() + `)`)
)

// parseJSON reads a text. lenient allows comments and trailing commas, as VS Code does. Errors are ParseErrors.
func parseJSON(text []byte, lenient bool) (*jsonDoc, error) {
	d := &jsonDoc{}
	var err error
	if d.mark, d.text, err = start(text); err != nil || len(bytes.Trim(d.text, " \t\r\n")) == 0 {
		return d, err
	}
	if at := tooDeep(d.text); at >= 0 {
		return nil, errorAt(d.text, at, "the nesting is too deep")
	}
	if !lenient {
		if err := d.checkStrict(); err != nil {
			return nil, err
		}
	}
	ended := append(bytes.Clone(d.text), '\n') // hujson knows no comment that the end of the text ends
	if hujson.Extra(ended).IsValid() {
		return d, nil
	}
	root, err := hujson.Parse(ended)
	if err != nil {
		return nil, hujsonError(d.text, err)
	}
	d.root = &root
	return d, nil
}

// tooDeep returns where the nesting is too deep, -1 if it is not.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			i += max(len(firstComment.Find(text[i:]))-1, 0)
		case '{', '[':
			if depth++; depth > maxDepth {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

// checkStrict checks that a text is JSON by RFC 8259.
func (d *jsonDoc) checkStrict() error {
	var raw json.RawMessage
	var fault *json.SyntaxError
	if !errors.As(json.Unmarshal(d.text, &raw), &fault) {
		return nil
	}
	at := max(int(fault.Offset)-1, 0)
	if d.text[at] == '/' {
		return errorAt(d.text, at, "comments are not allowed in this file")
	}
	return errorAt(d.text, at, "%v", fault)
}

// hujsonError puts the place into an error of hujson. The value that it may show can be a secret.
func hujsonError(text []byte, err error) error {
	var line, column int
	if _, e := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &column); e != nil {
		return errorAt(text, 0, "%v", err)
	}
	reason, _, shows := strings.Cut(errors.Unwrap(err).Error(), "invalid literal:")
	if shows {
		reason = "this is not a JSON value"
	}
	return errorAt(text, offsetOf(text, line, column), "%s", reason)
}

// pack returns the text of the tree.
func (d *jsonDoc) pack() []byte {
	return append([]byte(d.mark), bytes.TrimSuffix(d.root.Pack(), []byte("\n"))...)
}

// list is an object or an array in the tree.
type list interface {
	len() int
	value(i int) *hujson.Value
	// before is the white space and the comments before a child, or before the end.
	before(i int) *hujson.Extra
	add(name string, before hujson.Extra, v hujson.Value)
	remove(i int)
}

type object struct{ *hujson.Object }

func (o object) len() int                  { return len(o.Members) }
func (o object) value(i int) *hujson.Value { return &o.Members[i].Value }
func (o object) remove(i int)              { o.Members = append(o.Members[:i], o.Members[i+1:]...) }

func (o object) before(i int) *hujson.Extra {
	if i == len(o.Members) {
		return &o.AfterExtra
	}
	return &o.Members[i].Name.BeforeExtra
}

func (o object) add(name string, before hujson.Extra, v hujson.Value) {
	v.BeforeExtra = hujson.Extra(" ")
	key := hujson.Value{BeforeExtra: before, Value: hujson.Literal(quoted(name))}
	o.Members = append(o.Members, hujson.ObjectMember{Name: key, Value: v})
}

type array struct{ *hujson.Array }

func (a array) len() int                  { return len(a.Elements) }
func (a array) value(i int) *hujson.Value { return &a.Elements[i] }
func (a array) remove(i int)              { a.Elements = append(a.Elements[:i], a.Elements[i+1:]...) }

func (a array) before(i int) *hujson.Extra {
	if i == len(a.Elements) {
		return &a.AfterExtra
	}
	return &a.Elements[i].BeforeExtra
}

func (a array) add(_ string, before hujson.Extra, v hujson.Value) {
	v.BeforeExtra = before
	a.Elements = append(a.Elements, v)
}

// listOf returns a value as a list, nil if it is neither an object nor an array.
func listOf(v *hujson.Value) list {
	switch v := v.Value.(type) {
	case *hujson.Object:
		return object{v}
	case *hujson.Array:
		return array{v}
	}
	return nil
}

// find returns the place of a member of an object by its name, or -1. A name that occurs twice is refused:
// programs do not agree on which of the two counts.
func (d *jsonDoc) find(v *hujson.Value, name string) (int, error) {
	found := -1
	for i, m := range v.Value.(*hujson.Object).Members {
		switch {
		case m.Name.Value.(hujson.Literal).String() != name:
		case found >= 0:
			return -1, errorAt(d.text, m.Name.StartOffset, "%q stands here a second time", name)
		default:
			found = i
		}
	}
	return found, nil
}

// walk follows a path of names, and returns the value there, or nil. Every value on the way must be an
// object, and the last of the given kind.
func (d *jsonDoc) walk(path []string, kind hujson.Kind) (*hujson.Value, error) {
	v := d.root
	for i := 0; v != nil; i++ {
		want := kind
		if i < len(path) {
			want = '{'
		}
		if v.Value.Kind() != want {
			where := "the file"
			if i > 0 {
				where = fmt.Sprintf("%q", dotted(path[:i]))
			}
			kinds := map[hujson.Kind]string{'{': "an object", '[': "an array"}
			return nil, errorAt(d.text, v.StartOffset, "%s must be %s", where, kinds[want])
		}
		if i == len(path) {
			return v, nil
		}
		at, err := d.find(v, path[i])
		if err != nil || at < 0 {
			return nil, err
		}
		v = listOf(v).value(at)
	}
	return nil, nil
}

// plain returns a value as encoding/json would read it, with numbers as they are written.
func plain(v *hujson.Value) (all any) {
	bare := v.Clone()
	bare.Minimize()
	r := json.NewDecoder(bytes.NewReader(bare.Pack()))
	r.UseNumber()
	_ = r.Decode(&all) // hujson has read it before
	return all
}
