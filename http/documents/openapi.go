package documents

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"maps"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"relay/db/relay"
	"relay/http"
)

// object is a JSON object of a document.
type object = map[string]any

// OpenAPI returns the description of the HTTP API, an OpenAPI 3.1 document in JSON, for a
// relay with these routes and of the given version ("": unknown).
func OpenAPI(routes []http.Route, version string) []byte {
	c := readComponents()
	responses := object{
		"NotFound": object{"description": about(relay.NotFound) + " A client whose Accept names text/html gets a page.",
			"headers": headers(slices.Concat(everyAnswer, toPages), optional(c, pageHeaders)),
			"content": object{"application/problem+json": object{"schema": problemSchema(relay.NotFound)},
				"text/html": object{}}},
		"MethodNotAllowed": refusal(nethttp.StatusMethodNotAllowed, []relay.Code{relay.MethodNotAllowed}),
		"PreflightRefused": refusal(nethttp.StatusForbidden, []relay.Code{relay.OriginNotAllowed}),
		"Preflight": object{"description": "What a page may do.",
			"content": object{"application/json": object{"schema": reference("schemas", "Object")}},
			"headers": headers(slices.Concat(everyAnswer, toPages,
				[]string{"Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Max-Age"}), nil)},
	}
	paths := object{}
	for _, row := range routes {
		item, known := paths[row.Path].(object)
		if !known {
			item = object{}
			paths[row.Path] = item
		}
		item[strings.ToLower(row.Method)] = describe(row, operations[row.Method+" "+row.Path], responses)
	}
	return document(openAPI{
		OpenAPI: "3.1.1",
		Info:    information("relay", openAPIText, version),
		Servers: []object{{"url": "/"}},
		Paths:   paths,
		Components: object{
			"schemas": c.Schemas, "parameters": c.Parameters, "headers": c.Headers, "responses": responses,
			"securitySchemes": object{"key": object{"type": "apiKey", "in": "header", "name": "X-Mecha-Key",
				"description": securityText},
				"ticket": object{"type": "apiKey", "in": "query", "name": "ticket", "description": ticketText}},
		},
	})
}

// openAPI has the members of the document in the order in which people read them.
type openAPI struct {
	OpenAPI    string   `json:"openapi"`
	Info       object   `json:"info"`
	Servers    []object `json:"servers"`
	Paths      object   `json:"paths"`
	Components object   `json:"components"`
}

const (
	openAPIText = "What this relay serves over HTTP. /docs has the same in words, /asyncapi.json the frames of the " +
		"WebSocket.\n\n" +
		"Every GET but that of the WebSocket answers HEAD too, without the body. A path that is not here is 404, a known " +
		"one with another method is 405: NotFound and MethodNotAllowed under components. The preflight of a page in a " +
		"browser (CORS) under /api has the answers Preflight and PreflightRefused there. What is not HTTP, or has too long " +
		"headers, is 400, 417, 431, 501 or 505 in plain text, without the headers of the other answers.\n\n" +
		"Ignore fields and headers that you do not know: a later version may add some. " +
		"A query parameter with an empty value counts as absent, and one that is not known is ignored."
	ticketText   = "A ticket, for a page in a browser, which cannot set headers on a handshake: /docs/sockets."
	securityText = "The key. Every request with one also carries X-Request-Timestamp and X-Nonce, " +
		"and X-Signature where it is required: /docs/signing."
)

// information is the part of either document that says what it describes.
func information(title, text, version string) object {
	return object{"title": title, "version": cmp.Or(version, "unknown"), "description": text,
		"license": object{"name": "MIT"}}
}

// describe returns the operation of a row. A path with %2F in a parameter is not found.
func describe(row http.Route, o operation, responses object) object {
	parameters, refusals := slices.Clone(o.parameters), slices.Clone(o.refusals)
	for part := range strings.SplitSeq(row.Path, "/") {
		if name := strings.Trim(part, "{}"); name != part {
			parameters, refusals = append(parameters, name), append(refusals, relay.NotFound)
		}
	}
	made := object{
		"operationId": o.id, "summary": sentence(row.Doc), "description": "For: " + string(row.Who) + ".",
		"externalDocs": object{"url": "/docs/protocol#" + o.section},
	}
	if row.Who != http.Anyone {
		made["security"] = []object{{"key": []string{}}}
		refusals = append(refusals, refusedWithKey...)
	}
	var all []object
	for _, name := range parameters {
		all = append(all, reference("parameters", name))
	}
	switch {
	case o.ticket:
		made["security"] = append(made["security"].([]object), object{"ticket": []string{}})
		all = append(all, withoutTicket(readComponents())...)
	case row.Who != http.Anyone:
		for _, name := range withKey {
			all = append(all, reference("parameters", name))
		}
	}
	if all != nil {
		made["parameters"] = all
	}
	if o.body != "" {
		made["requestBody"] = object{"required": !o.mayBeEmpty, "content": object{"application/json": object{
			"schema": reference("schemas", o.body), "example": json.RawMessage(o.example)}}}
	}
	made["responses"] = answersOf(row, o, refusals, responses)
	return made
}

// withoutTicket returns the parameters of a request with a key, where a ticket can stand for
// all of them.
func withoutTicket(c *components) (all []object) {
	for _, name := range withKey {
		p := maps.Clone(c.Parameters[name].(object))
		delete(p, "required")
		p["description"] = p["description"].(string) + " Not with a ticket."
		all = append(all, p)
	}
	return all
}

// answersOf returns the responses of a row by their status. Those that several operations
// have alike go into shared, once.
func answersOf(row http.Route, o operation, refusals []relay.Code, shared object) object {
	all := object{}
	for _, a := range o.answers {
		names := everyAnswer
		if row.Who != http.Anyone {
			names = slices.Concat(everyAnswer, toPages)
		}
		if a.status == nethttp.StatusSwitchingProtocols {
			names = nil
		}
		made := object{"description": a.about, "headers": headers(append(slices.Clone(names), a.headers...), nil)}
		content := object{}
		if a.schema != "" {
			content["application/json"] = object{"schema": reference("schemas", a.schema)}
		}
		for _, media := range a.media {
			content[media] = object{}
		}
		if len(content) > 0 {
			made["content"] = content
		}
		all[strconv.Itoa(a.status)] = made
	}
	for status, codes := range byStatusOf(refusals) {
		key := strconv.Itoa(status)
		switch common := byStatusOf(refusedWithKey)[status]; {
		case row.Who == http.Anyone && status == nethttp.StatusNotFound:
			all[key] = reference("responses", "NotFound")
		case row.Who != http.Anyone && slices.Equal(codes, common):
			name := "Status" + key
			shared[name] = refusal(status, codes)
			all[key] = reference("responses", name)
		default:
			all[key] = refusal(status, codes)
		}
	}
	return all
}

// byStatusOf groups codes by their status, in the order of relay.Codes, each once.
// TooManySockets has two.
func byStatusOf(codes []relay.Code) map[int][]relay.Code {
	all := map[int][]relay.Code{}
	for _, c := range relay.Codes {
		if !slices.Contains(codes, c.Code) {
			continue
		}
		all[http.Status(c.Code)] = append(all[http.Status(c.Code)], c.Code)
		if c.Code == relay.TooManySockets {
			all[nethttp.StatusServiceUnavailable] = append(all[nethttp.StatusServiceUnavailable], c.Code)
		}
	}
	return all
}

// refusal returns the response of a status with some of its codes.
func refusal(status int, codes []relay.Code) object {
	var texts []string
	for _, c := range codes {
		texts = append(texts, "`"+string(c)+"`: "+about(c))
	}
	var sometimes object
	if slices.Contains(codes, relay.ConversationFull) { // which no waiting makes less full
		sometimes = optional(readComponents(), byStatus[status])
	}
	return object{
		"description": strings.Join(texts, "\n\n"),
		"headers":     headers(slices.Concat(everyAnswer, toPages, byStatus[status]), sometimes),
		"content":     object{"application/problem+json": object{"schema": problemSchema(codes...)}},
	}
}

// problemSchema is the schema of a problem document that has one of some codes.
func problemSchema(codes ...relay.Code) object {
	properties := object{"code": object{"enum": codes}}
	if slices.Contains(codes, relay.RecipientNotFound) {
		properties["did_you_mean"] = object{"type": "array", "maxItems": 3, "items": reference("schemas", "Address"),
			"description": "Registered addresses that are similar, with recipient_not_found."}
	}
	if slices.Contains(codes, relay.TimestampOutOfRange) {
		properties["server_time"] = object{"type": "string", "format": "date-time",
			"description": "The time of the relay's clock, with timestamp_out_of_range."}
	}
	return object{"allOf": []object{reference("schemas", "Problem")}, "properties": properties}
}

// about returns the meaning of a code for people.
func about(code relay.Code) string {
	i := slices.IndexFunc(relay.Codes, func(c relay.CodeInfo) bool { return c.Code == code })
	return relay.Codes[i].Meaning
}

// headers returns the headers of a response: references by name, and more.
func headers(names []string, more object) object {
	all := object{}
	for _, name := range names {
		all[name] = reference("headers", name)
	}
	maps.Copy(all, more)
	return all
}

// optional returns headers that an answer may lack.
func optional(c *components, names []string) object {
	all := object{}
	for _, name := range names {
		h := maps.Clone(c.Headers[name].(object))
		delete(h, "required")
		all[name] = h
	}
	return all
}

func reference(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

// sentence makes the words of a row of the route table one.
func sentence(text string) string {
	r := []rune(text)
	r[0] = unicode.ToUpper(r[0])
	return string(r) + "."
}

//go:embed components.json
var componentsFile []byte

// components are the parts of the documents that are written by hand.
type components struct {
	Parameters object `json:"parameters"`
	Headers    object `json:"headers"`
	Schemas    object `json:"schemas"`
}

// readComponents returns a copy that the caller may change.
func readComponents() *components {
	var c components
	if err := json.Unmarshal(componentsFile, &c); err != nil {
		panic(err) // the file is part of the program, and the tests read it
	}
	return &c
}

// document returns the text of a document.
func document(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		panic(err) // there are strings, numbers, lists and objects in it
	}
	return b.Bytes()
}
