// Package apitest holds what a relay answers against the documents of its API. It is for tests: a recorder is
// in front of a server and checks every exchange. Anything that a document does not name is a fault: a path, a
// status, a code, a header, a field, a frame. The documents are a ring: its tests beside others call Describe,
// and without it nothing is held against them.
package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"relay/db/scratch"
)

// object is a JSON object of a document.
type object = map[string]any

// api is what the documents say, with a validator for each schema. It is
// safe for concurrent use.
type api struct {
	operations []*operation
	others     map[string]response // under components: what no operation answers
	frames     map[string]*schema
	closeCodes map[int]bool
}

// An operation is one endpoint.
type operation struct {
	name       string   // as in GET /livez
	segments   []string // of the path
	method     string
	parameters []parameter
	body       *schema // of a request; nil: none is read
	mayBeEmpty bool    // a request may come without the body
	responses  map[int]response
}

type parameter struct {
	name, in string
	required bool
	schema   *schema
}

type response struct {
	headers map[string]header  // by their canonical names
	content map[string]*schema // by media type; nil: a body that is not JSON
}

type header struct {
	required bool
	schema   *schema
}

// documents makes the documents: OpenAPI, and AsyncAPI; nil without them.
var documents func() (open, async []byte)

// Describe says how to make the documents. Where nobody does, nothing is held against them.
func Describe(made func() (open, async []byte)) { documents = made }

// described reads the documents once; nil without them.
var described = sync.OnceValue(func() *api {
	if documents == nil {
		return nil
	}
	openAPI, asyncAPI := documents()
	open, closed := newReader("openapi.json", openAPI), newReader("closed.json", Closed(openAPI))
	a := &api{others: map[string]response{}, frames: map[string]*schema{}, closeCodes: map[int]bool{}}
	for path, item := range open.doc["paths"].(object) {
		for method, v := range item.(object) {
			at := pointer("", "paths", path, method)
			o := &operation{name: strings.ToUpper(method) + " " + path, method: strings.ToUpper(method),
				segments: strings.Split(path, "/"), responses: map[int]response{}}
			if list, ok := v.(object)["parameters"].([]any); ok {
				for i := range list {
					o.parameters = append(o.parameters, open.parameter(pointer(at, "parameters", strconv.Itoa(i))))
				}
			}
			if described, _ := v.(object)["requestBody"].(object); described != nil {
				o.mayBeEmpty = described["required"] != true
				o.body = open.compile(pointer(at, "requestBody", "content", "application/json", "schema"))
			}
			for status := range v.(object)["responses"].(object) {
				n, err := strconv.Atoi(status)
				if err != nil {
					panic(err)
				}
				o.responses[n] = closed.response(pointer(at, "responses", status))
			}
			a.operations = append(a.operations, o)
		}
	}
	for _, name := range []string{"NotFound", "MethodNotAllowed", "Preflight", "PreflightRefused"} {
		a.others[name] = closed.response(pointer("", "components", "responses", name))
	}
	sockets, clients := newReader("closed.json", Closed(asyncAPI)), newReader("asyncapi.json", asyncAPI)
	for kind := range sockets.doc["components"].(object)["messages"].(object) {
		of := sockets
		if ofClients[kind] { // these may have more fields
			of = clients
		}
		a.frames[kind] = of.compile(pointer("", "components", "messages", kind, "payload"))
	}
	for code := range sockets.doc["channels"].(object)["socket"].(object)["x-close-codes"].(object) {
		n, err := strconv.Atoi(code)
		if err != nil {
			panic(err)
		}
		a.closeCodes[n] = true
	}
	return a
})

// Closed returns a document whose schemas allow no fields but those that they name. The
// documents themselves are open, because a later version may add fields.
func Closed(document []byte) []byte {
	var doc object
	if err := json.Unmarshal(document, &doc); err != nil {
		panic(err)
	}
	schemas := doc["components"].(object)["schemas"].(object)
	const prefix = "#/components/schemas/"
	for name := range maps.Clone(schemas) { // a schema that others extend stays open for them
		schemas[name+"Open"] = clone(schemas[name])
	}
	var walk func(v any, inAllOf bool)
	walk = func(v any, inAllOf bool) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x, inAllOf)
			}
		case object:
			if ref, ok := v["$ref"].(string); ok && inAllOf && strings.HasPrefix(ref, prefix) {
				v["$ref"] = ref + "Open"
			}
			for name, x := range v {
				walk(x, name == "allOf")
			}
			if _, object := v["properties"].(object); object && v["additionalProperties"] == nil {
				v["unevaluatedProperties"] = false
			}
		}
	}
	for name, v := range schemas {
		if !strings.HasSuffix(name, "Open") {
			walk(v, false)
		}
	}
	walk(doc["paths"], false)
	walk(doc["components"].(object)["responses"], false)
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return text
}

func clone(v any) any {
	text, err := json.Marshal(v)
	if err == nil {
		v = nil
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		panic(err)
	}
	return v
}

// A reader compiles the parts of one document.
type reader struct {
	name     string
	doc      object
	mu       sync.Mutex // for the compiler
	compiler *jsonschema.Compiler
}

func newReader(name string, document []byte) *reader {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(name, doc); err != nil {
		panic(err)
	}
	return &reader{name: name, doc: doc.(object), compiler: c}
}

func pointer(at string, parts ...string) string {
	for _, p := range parts {
		at += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(p)
	}
	return at
}

// find returns the node at a place, and where it stands once references are followed.
func (r *reader) find(at string) (string, object) {
	var node any = r.doc
	for part := range strings.SplitSeq(at[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if list, ok := node.([]any); ok {
			i, err := strconv.Atoi(part)
			if err != nil {
				panic(err)
			}
			node = list[i]
		} else {
			node = node.(object)[part]
		}
	}
	if ref, ok := node.(object)["$ref"].(string); ok {
		return r.find(strings.TrimPrefix(ref, "#"))
	}
	return at, node.(object)
}

// compile returns a part of the document that is a schema.
func (r *reader) compile(at string) *schema { return &schema{of: r, at: at} }

// A schema is compiled when it is first asked: most test programs meet few of them.
type schema struct {
	of       *reader
	at       string
	once     sync.Once
	compiled *jsonschema.Schema
}

// Validate says what is wrong with a value; nil if nothing is.
func (s *schema) Validate(v any) error {
	s.once.Do(func() {
		s.of.mu.Lock()
		defer s.of.mu.Unlock()
		compiled, err := s.of.compiler.Compile(s.of.name + "#" + (&url.URL{Path: s.at}).EscapedPath())
		if err != nil {
			panic(err)
		}
		s.compiled = compiled
	})
	return s.compiled.Validate(v)
}

func (r *reader) parameter(at string) parameter {
	at, p := r.find(at)
	required, _ := p["required"].(bool)
	return parameter{name: p["name"].(string), in: p["in"].(string), required: required, schema: r.compile(at + "/schema")}
}

func (r *reader) response(at string) response {
	at, node := r.find(at)
	out := response{headers: map[string]header{}, content: map[string]*schema{}}
	if all, ok := node["headers"].(object); ok {
		for name := range all {
			place, h := r.find(pointer(at, "headers", name))
			required, _ := h["required"].(bool)
			out.headers[http.CanonicalHeaderKey(name)] = header{required, r.compile(place + "/schema")}
		}
	}
	if all, ok := node["content"].(object); ok {
		for media, v := range all {
			out.content[media] = nil
			if v.(object)["schema"] != nil {
				out.content[media] = r.compile(pointer(at, "content", media, "schema"))
			}
		}
	}
	return out
}

// find returns the operation of a request, and the parameters in its path. known: the path
// is one of the API's, perhaps with another method.
func (a *api) find(method string, u *url.URL) (found *operation, values map[string]string, known bool) {
	path := u.Path
	if strings.Contains(strings.ToUpper(u.EscapedPath()), "%2F") {
		path = u.EscapedPath() // which is not found, for whatever operation it was meant
	}
	parts := strings.Split(path, "/")
	for _, o := range a.operations {
		if len(o.segments) != len(parts) {
			continue
		}
		in := map[string]string{}
		matches := true
		for i, s := range o.segments {
			if strings.HasPrefix(s, "{") && parts[i] != "" {
				in[strings.Trim(s, "{}")] = parts[i]
			} else if s != parts[i] {
				matches = false
			}
		}
		if !matches {
			continue
		}
		known = true
		if o.method == method || o.method == http.MethodGet && method == http.MethodHead &&
			!strings.HasPrefix(path, "/api/v1/ws/") {
			return o, in, true
		}
	}
	return nil, nil, known
}

// ofHTTP are headers of the message itself (RFC 9110, RFC 9112), which OpenAPI leaves out.
var ofHTTP = []string{"Connection", "Content-Length", "Content-Type", "Date", "Transfer-Encoding"}

// check returns what is wrong with an answer: nil if it is as described.
func (d response) check(h http.Header, body []byte) (faults []string) {
	for name, values := range h {
		if described, ok := d.headers[name]; !ok {
			if !slices.Contains(ofHTTP, name) {
				faults = append(faults, fmt.Sprintf("the header %s: %q is not described", name, values))
			}
		} else if err := described.schema.Validate(valueOf(values[0])); err != nil &&
			described.schema.Validate(values[0]) != nil {
			faults = append(faults, fmt.Sprintf("the header %s: %q: %v", name, values, err))
		}
	}
	for name, described := range d.headers {
		if described.required && len(h[name]) == 0 {
			faults = append(faults, "the header "+name+" is missing")
		}
	}
	if len(d.content) == 0 {
		if len(body) > 0 {
			faults = append(faults, "a body is not described")
		}
		return faults
	}
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	schema, ok := d.content[media]
	if !ok {
		return append(faults, fmt.Sprintf("the media type %q is not described", media))
	}
	if schema == nil {
		return faults
	}
	if err := validate(schema, body); err != nil {
		faults = append(faults, err.Error())
	}
	return faults
}

// large is the length from which a body counts as large. maxLarge is how many large bodies
// are read for one schema, maxLargeLong how many in the long form of the tests: to read all
// would take the tests a second for each 30 MB.
const (
	large        = 64 << 10
	maxLarge     = 8
	maxLargeLong = 50
)

var largeRead sync.Map // *schema → *atomic.Int64

func validate(schema *schema, text []byte) error {
	if len(text) > large {
		n, _ := largeRead.LoadOrStore(schema, new(atomic.Int64))
		limit := int64(maxLarge)
		if scratch.IsLong() {
			limit = maxLargeLong
		}
		if n.(*atomic.Int64).Add(1) > limit {
			return nil
		}
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

var digits = regexp.MustCompile(`^-?[0-9]+$`)

// valueOf reads the text of a parameter or a header: whole numbers are numbers.
func valueOf(text string) any {
	if digits.MatchString(text) {
		return json.Number(text)
	}
	return text
}

// checkRequest returns the parts of an accepted request that the document does not describe.
func (o *operation) checkRequest(
	h http.Header, query url.Values, path map[string]string, body []byte,
) (faults []string) {
	for _, p := range o.parameters {
		var text string
		switch p.in {
		case "header":
			text = h.Get(p.name)
		case "query":
			text = query.Get(p.name)
			if strings.Contains(text, "T") { // a + that was not escaped
				text = strings.ReplaceAll(text, " ", "+")
			}
		case "path":
			text = path[p.name]
		}
		if text == "" { // counts as absent
			if p.required {
				faults = append(faults, "it lacks the required "+p.name)
			}
			continue
		}
		if err := p.schema.Validate(valueOf(text)); err != nil && p.schema.Validate(text) != nil {
			faults = append(faults, fmt.Sprintf("%s=%.100q was taken: %v", p.name, text, err))
		}
	}
	if o.body == nil || o.mayBeEmpty && len(body) == 0 {
		return faults
	}
	if err := validate(o.body, body); err != nil {
		faults = append(faults, fmt.Sprintf("the body %.200q was taken: %v", body, err))
	}
	return faults
}
