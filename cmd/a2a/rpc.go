package a2a

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"relay/db/strict"
)

// fault is an error as a client reads it (JSON-RPC 2.0 §5.1, A2A §9.5).
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    []any  `json:"data,omitempty"`
}

func (f *fault) Error() string { return f.Message }

// The codes of errors: those of JSON-RPC, and those of A2A (§5.4).
const (
	codeParse         = -32700
	codeRequest       = -32600
	codeMethod        = -32601
	codeParams        = -32602
	codeInternal      = -32603
	codeTaskNotFound  = -32001
	codeNotCancelable = -32002
	codeNoPush        = -32003
	codeUnsupported   = -32004
	codeVersion       = -32009
)

const (
	errorDomain    = "a2a-protocol.org"
	errorInfoType  = "type.googleapis.com/google.rpc.ErrorInfo"
	badRequestType = "type.googleapis.com/google.rpc.BadRequest"

	longestID = 256 // bytes, of a request, of a message, of a task
)

type errorInfo struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// faultf makes an error of A2A. reason names it for programs.
func faultf(code int, reason, format string, args ...any) *fault {
	return &fault{code, fmt.Sprintf(format, args...),
		[]any{errorInfo{Type: errorInfoType, Reason: reason, Domain: errorDomain}}}
}

func noTask(id string) *fault {
	f := faultf(codeTaskNotFound, "TASK_NOT_FOUND", "there is no such task of this Mecha")
	if len(id) <= longestID {
		f.Data = []any{errorInfo{errorInfoType, "TASK_NOT_FOUND", errorDomain, map[string]string{"taskId": id}}}
	}
	return f
}

// wrong says which field of the parameters is wrong, and why.
func wrong(field, format string, args ...any) *fault {
	why := fmt.Sprintf(format, args...)
	type violation struct {
		Field       string `json:"field"`
		Description string `json:"description"`
	}
	return &fault{codeParams, field + " " + why, []any{struct {
		Type   string      `json:"@type"`
		Fields []violation `json:"fieldViolations"`
	}{badRequestType, []violation{{field, why}}}}}
}

// call is a request of JSON-RPC.
type call struct {
	id     json.RawMessage // null until it is known
	method string
	params json.RawMessage // an object
}

// readCall reads a request. With an error, call.id is what the answer is to have.
func readCall(body []byte) (call, *fault) {
	c := call{id: json.RawMessage("null"), params: json.RawMessage("{}")}
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		return c, &fault{Code: codeRequest, Message: "a batch of requests is not taken: send each separately"}
	}
	m, err := members(body, "jsonrpc", "id", "method", "params")
	if err != nil {
		return c, &fault{Code: codeParse, Message: err.Error()}
	}
	id, given := m["id"]
	switch {
	case !given:
		return c, &fault{Code: codeRequest, Message: "id is missing: a notification has no effect here"}
	case len(id) > longestID || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9'):
		return c, &fault{Code: codeRequest, Message: fmt.Sprintf("id must be a string or a number of at most %d bytes",
			longestID)}
	}
	c.id = id
	version, _ := strict.String(m["jsonrpc"])
	method, ok := strict.String(m["method"])
	switch {
	case version != "2.0":
		return c, &fault{Code: codeRequest, Message: `jsonrpc must be "2.0"`}
	case !ok || method == "":
		return c, &fault{Code: codeRequest, Message: "method must be a string"}
	}
	c.method = method
	if p, given := m["params"]; given && !strict.IsNull(p) {
		if !strict.IsObject(p) {
			return c, &fault{Code: codeParams, Message: "params must be an object"}
		}
		c.params = p
	}
	return c, nil
}

// response is an answer. One of result and fault is set.
type response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *fault          `json:"error,omitempty"`
}

func answer(id json.RawMessage, result any, f *fault) []byte {
	return marshal(response{"2.0", id, result, f})
}

// members reads a JSON object strictly. Names other than the known ones are left out.
func members(text []byte, known ...string) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	err := strict.ReadObject(text, known, func(name string, value []byte) error {
		for _, k := range known {
			if k == name {
				all[name] = value
			}
		}
		return nil
	})
	return all, err
}

// object reads the fields of an object that is one of the parameters. path says which, as in
// message; "" is the parameters themselves. null is the same as nothing.
type object struct {
	path   string
	fields map[string]json.RawMessage
	fault  *fault // the first one
}

func readObject(path string, text []byte, known ...string) *object {
	o := &object{path: path}
	if len(text) == 0 || strict.IsNull(text) {
		return o
	}
	if !strict.IsObject(text) {
		o.fault = wrong(cmp.Or(path, "params"), "must be an object")
		return o
	}
	var err error
	if o.fields, err = members(text, known...); err != nil { // a name that comes twice
		o.fault = wrong(cmp.Or(path, "params"), "is not valid: %v", err)
	}
	for name, value := range o.fields {
		if strict.IsNull(value) {
			delete(o.fields, name)
		}
	}
	return o
}

func (o *object) name(field string) string {
	if o.path == "" {
		return field
	}
	return o.path + "." + field
}

func (o *object) failed(field, format string, args ...any) {
	if o.fault == nil {
		o.fault = wrong(o.name(field), format, args...)
	}
}

// text reads a string of at most limit bytes, and of at least one if it is required.
func (o *object) text(field string, limit int, required bool) string {
	value, given := o.fields[field]
	if !given {
		if required {
			o.failed(field, "is required")
		}
		return ""
	}
	s, ok := strict.String(value)
	switch {
	case !ok:
		o.failed(field, "must be a string")
	case required && s == "":
		o.failed(field, "must not be empty")
	case len(s) > limit:
		o.failed(field, "must have at most %d bytes", limit)
	}
	return s
}

// whole reads a whole number, or nil if the field is missing.
func (o *object) whole(field string, least, limit int64) *int {
	value, given := o.fields[field]
	if !given {
		return nil
	}
	n, ok := strict.Int(value)
	if !ok || n < least || n > limit {
		o.failed(field, "must be a whole number from %d to %d", least, limit)
		return nil
	}
	i := int(n)
	return &i
}

// is reads a boolean, or false if the field is missing.
func (o *object) is(field string) bool {
	switch value := string(o.fields[field]); value {
	case "", "false":
		return false
	case "true":
		return true
	}
	o.failed(field, "must be true or false")
	return false
}

// list reads the values of an array.
func (o *object) list(field string, limit int) (all []json.RawMessage) {
	value, given := o.fields[field]
	if !given {
		return nil
	}
	if value[0] != '[' {
		o.failed(field, "must be a list")
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(value)) // not all at once: there may be half a million
	_, _ = d.Token()                             // the bracket; the text has been checked
	for d.More() {
		var one json.RawMessage
		if len(all) == limit || d.Decode(&one) != nil {
			o.failed(field, "must have at most %d values", limit)
			return nil
		}
		all = append(all, one)
	}
	return all
}
