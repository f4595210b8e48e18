package http_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	nethttp "net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"relay/http"
	"relay/http/apitest"
	"relay/http/documents"
)

// The tests of this package serve the documents, and hold every exchange against them.
func init() {
	apitest.Describe(func() (open, async []byte) { return openAPI(), documents.AsyncAPI("test") })
	addRoutes = func(c *http.Config) { c.Routes = append(c.Routes, documents.Routes(routes, "test")...) }
}

func openAPI() []byte { return documents.OpenAPI(routes(), "test") }

// Each row of the route table is an operation of the document, and the other way round.
func TestEveryRouteIsDescribed(t *testing.T) {
	doc := mustLoad(t, openAPI())
	table, described := map[string]bool{}, map[string]bool{}
	for _, row := range rows(t) {
		table[row[1]+" "+row[2]] = true
	}
	ids := map[string]string{}
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			name := method + " " + path
			described[name] = true
			if other := ids[o.OperationID]; o.OperationID == "" || other != "" {
				t.Errorf("%s has the operationId %q, as %q", name, o.OperationID, other)
			}
			ids[o.OperationID] = name
			if o.Summary == "" || o.Responses.Len() == 0 {
				t.Errorf("%s is not described", name)
			}
		}
	}
	if !maps.Equal(table, described) {
		t.Errorf("the route table has %v, the document %v", slices.Sorted(maps.Keys(table)), slices.Sorted(maps.Keys(described)))
	}
}

// A page may set (CORS) all that the API reads of a request, and Content-Type.
func TestPagesMaySetWhatTheDocumentReads(t *testing.T) {
	t.Parallel()
	names := map[string]bool{"Content-Type": true, "X-Mecha-Key": true}
	for path, item := range mustLoad(t, openAPI()).Paths.Map() {
		for _, o := range item.Operations() {
			for _, p := range o.Parameters {
				if strings.HasPrefix(path, "/api/") && path != socketRoute && p.Value.In == "header" {
					names[p.Value.Name] = true
				}
			}
		}
	}
	r := mustServe(t, func(s *settings) { s.api.AllowOrigins = []string{"*"} })
	a := mecha{r: r}.do("OPTIONS", whoami, "", with("X-Mecha-Key"), with("X-Nonce"), with("X-Request-Timestamp"), unsigned,
		with("Origin", "https://app.example"), with("Access-Control-Request-Method", "GET")).want(200)
	if got, want := a.header.Get("Access-Control-Allow-Headers"), strings.Join(slices.Sorted(maps.Keys(names)), ", "); got != want {
		t.Errorf("pages may set %s, and the API reads %s", got, want)
	}
}

// Everything under components is referred to, or told of in the text of the document.
func TestNothingIsDescribedThatIsNotUsed(t *testing.T) {
	open, async := string(openAPI()), string(documents.AsyncAPI("test"))
	for name, text := range map[string]string{"OpenAPI": open, "AsyncAPI": async} {
		var doc struct{ Components map[string]map[string]any }
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		for kind, all := range doc.Components {
			for part := range all {
				used := strings.Contains(open+async, fmt.Sprintf("#/components/%s/%s\"", kind, part)) || strings.Contains(text, part+" and ") || strings.Contains(text, " and "+part)
				if kind != "securitySchemes" && !used {
					t.Errorf("%s: nothing refers to %s/%s", name, kind, part)
				}
			}
		}
	}
}

func mustLoad(t *testing.T, text []byte) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// A drive makes requests of every operation and notes what came of them. Each exchange
// is held against the document twice: by kin-openapi and by package apitest.
type drive struct {
	open, closed *openapi3.T
	mu           sync.Mutex
	seen         map[string]int  // by operation, status and code
	beyond       map[string]bool // outcomes that this machine cannot bring about
}

func newDrive(t *testing.T) *drive {
	text := openAPI()
	d := &drive{open: mustLoad(t, text), closed: mustLoad(t, apitest.Closed(text)), seen: map[string]int{}, beyond: map[string]bool{}}
	if err := d.open.Validate(context.Background()); err != nil {
		t.Errorf("the document is not valid: %v", err)
	}
	return d
}

// lack notes an outcome that this machine cannot bring about.
func (d *drive) lack(outcome string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beyond[outcome] = true
}

// outcome names what came of a request, as in "GET /livez 200 ".
func outcome(operation string, status int, code string) string {
	return fmt.Sprintf("%s %d %s", operation, status, code)
}

// described returns all outcomes that the document has.
func (d *drive) described() map[string]bool {
	all := map[string]bool{}
	for path, item := range d.open.Paths.Map() {
		for method, o := range item.Operations() {
			for text, r := range o.Responses.Map() {
				status, _ := strconv.Atoi(text)
				problem := r.Value.Content["application/problem+json"]
				if problem == nil {
					all[outcome(method+" "+path, status, "")] = true
					continue
				}
				for _, code := range problem.Schema.Value.Properties["code"].Value.Enum {
					all[outcome(method+" "+path, status, code.(string))] = true
				}
			}
		}
	}
	return all
}

// hold checks the exchange of a call of an operation, the first of its outcome.
func (d *drive) hold(operation string, c *call, a reply) {
	a.t.Helper()
	key := outcome(operation, a.status, apitest.CodeOf(a.body))
	d.mu.Lock()
	d.seen[key]++
	first := d.seen[key] == 1
	d.mu.Unlock()
	if !first {
		return
	}
	q, err := c.request("http://relay.test")
	if err != nil {
		a.t.Fatal(err)
	}
	for _, fault := range apitest.Check(&apitest.Exchange{Method: c.method, URL: q.URL, Request: q.Header, Sent: []byte(c.body), Status: a.status, Header: a.header, Body: a.body}) {
		a.t.Errorf("%s: %s", key, fault)
	}
	if err := d.validate(operation, q, c.body, a); err != nil {
		a.t.Errorf("%s: kin-openapi: %v", key, err)
	}
}

// validate is what kin-openapi says of an exchange. It knows a request only that was
// taken.
func (d *drive) validate(operation string, q *nethttp.Request, body string, a reply) error {
	if a.status < 400 {
		if err := d.validateRequest(operation, q, body); err != nil {
			return err
		}
	}
	in := requestOf(d.closed, operation, q, body)
	if in == nil {
		return fmt.Errorf("the document does not have %s", operation)
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)), Options: in.Options})
}

// validateRequest is what kin-openapi says of a request.
func (d *drive) validateRequest(operation string, q *nethttp.Request, body string) error {
	in := requestOf(d.open, operation, q, body)
	if in == nil {
		return fmt.Errorf("the document does not have %s", operation)
	}
	return openapi3filter.ValidateRequest(context.Background(), in)
}

// requestOf is a request of an operation of a document; nil if it has no such operation.
func requestOf(doc *openapi3.T, operation string, q *nethttp.Request, body string) *openapi3filter.RequestValidationInput {
	method, path, _ := strings.Cut(operation, " ")
	item := doc.Paths.Value(path)
	if item == nil || item.GetOperation(method) == nil {
		return nil
	}
	values, parts := map[string]string{}, strings.Split(q.URL.Path, "/")
	for i, s := range strings.Split(path, "/") {
		if strings.HasPrefix(s, "{") && i < len(parts) {
			values[strings.Trim(s, "{}")] = parts[i]
		}
	}
	q = q.Clone(context.Background())
	q.Header.Set("Content-Type", "application/json") // which the relay ignores
	q.Body = io.NopCloser(strings.NewReader(body))
	return &openapi3filter.RequestValidationInput{Request: q, PathParams: values,
		Route:   &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: item.GetOperation(method)},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, SkipSettingDefaults: true}}
}

// finish reports the outcomes that are described and were not seen, and counts.
func (d *drive) finish(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	all, operations, statuses := d.described(), map[string]bool{}, map[string]bool{}
	for key := range all {
		fields := strings.Fields(key)
		operations[strings.Join(fields[:2], " ")], statuses[strings.Join(fields[:3], " ")] = true, true
		if d.seen[key] == 0 && !d.beyond[key] {
			t.Errorf("described, and never seen: %s", key)
		}
	}
	for key := range d.seen {
		if !all[key] {
			t.Errorf("seen, and not described: %s", key)
		}
	}
	t.Logf("%d operations, %d pairs of operation and status, %d of operation and outcome: all seen but %d, none undescribed", len(operations), len(statuses), len(all), len(d.beyond))
}

// Both checks see what is wrong, each kind of it.
func TestTheChecksSeeWhatIsWrong(t *testing.T) {
	t.Parallel()
	d := newDrive(t)
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	c := alice.prepare("GET", whoami, "")
	right, refused := r.mustDo(c), alice.get(whoami, nonce("a b"))
	q, err := c.request("http://relay.test")
	if err != nil {
		t.Fatal(err)
	}
	faults := func(a reply) (ours, theirs bool) {
		a.header = a.header.Clone()
		found := apitest.Check(&apitest.Exchange{Method: c.method, URL: q.URL, Request: q.Header, Status: a.status, Header: a.header, Body: a.body})
		return len(found) > 0, d.validate("GET "+whoami, q, "", a) != nil
	}
	for _, a := range []reply{right, refused} {
		if ours, theirs := faults(a); ours || theirs {
			t.Errorf("%d %s is refused: %v %v", a.status, a.body, ours, theirs)
		}
	}
	edit := func(a reply, old, now string) reply {
		a.body = bytes.Replace(a.body, []byte(old), []byte(now), 1)
		return a
	}
	for name, a := range map[string]reply{
		"a field more":    edit(right, `"label"`, `"colour":1,"label"`),
		"a field less":    edit(right, `"signature_required":false,`, ``),
		"another type":    edit(right, `"label":""`, `"label":null`),
		"a wrong time":    edit(right, `"expires_at":null`, `"expires_at":"now"`),
		"another code":    edit(refused, `"code":"malformed_header"`, `"code":"nonsense"`),
		"another status":  {of: right.of, status: 418, header: right.header, body: refused.body},
		"no JSON":         edit(right, `}`, ``),
		"an unknown path": {of: right.of, status: 404, header: refused.header, body: refused.body},
	} {
		if ours, theirs := faults(a); !ours || !theirs {
			t.Errorf("%s is not seen: by us %v, by kin-openapi %v", name, ours, theirs)
		}
	}
	for name, value := range map[string]string{"X-Other": "1", "Cache-Control": "public", "X-Request-Id": ""} { // kin-openapi looks at headers that are described
		a := right
		a.header = a.header.Clone()
		if a.header.Set(name, value); value == "" {
			a.header.Del(name)
		}
		if ours, _ := faults(a); !ours {
			t.Errorf("the header %s: %q is not seen", name, value)
		}
	}
}

// The document describes what the relay reads of a request: the fields of bodies and the parameters
// of queries, as the source names them.
func TestWhatIsReadOfRequestsIsDescribed(t *testing.T) {
	doc := mustLoad(t, openAPI())
	word := regexp.MustCompile(`"(\w+)(?:,omitempty|,omitzero)?"`)
	names := func(file, pattern string) (all []string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range regexp.MustCompile(pattern).FindAllString(string(text), -1) {
			for _, m := range word.FindAllStringSubmatch(part, -1) {
				all = append(all, m[1])
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	fields := func(schema *openapi3.SchemaRef) []string { return slices.Sorted(maps.Keys(schema.Value.Properties)) }
	schemas := doc.Components.Schemas
	search := schemas["Search"]
	for what, pair := range map[string][2][]string{
		"a send":           {fields(schemas["Letter"]), names("../db/relay/send_json.go", `(?s)sendFields = .*?\}`)},
		"a profile":        {fields(schemas["Profile"]), names("../db/relay/profile.go", `(?s)profileFields = .*?\}`)},
		"a search":         {fields(search), names("../db/relay/search_json.go", `(?s)searchFields = .*?\}`)},
		"a filter":         {fields(search.Value.Properties["filter"]), names("../db/relay/search_json.go", `(?s)filterKeys\s+= .*?\}`)},
		"a frame":          {fieldsOfFrames(t), names("../db/relay/frame_json.go", `(?s)frameFields = .*?\}`)},
		"an ack":           {fields(schemas["Ack"]), names("../db/relay/ack_json.go", `(?s)ackFields = .*?\}`)},
		"a skill":          {fields(schemas["Skill"]), names("../db/relay/profile.go", `(?s)type Skill struct .*?\n\}`)},
		"a page's query":   {queryOf(doc, historyRoute), names("history.go", `(?:Get|v\.time)\("\w+"\)|choice\(&v, "\w+"`)},
		"a socket's query": {queryOf(doc, socketRoute), append(names("../ws/handshake.go", `v\.Get\("\w+"\)`), names("ticket.go", `Query\(\)\.Get\("\w+"\)`)...)},
	} {
		described, read := pair[0], pair[1]
		slices.Sort(described)
		slices.Sort(read)
		if len(read) == 0 || !slices.Equal(described, read) {
			t.Errorf("%s: the document has %v, the relay reads %v", what, described, read)
		}
	}
}

// fieldsOfFrames returns the fields of the frames that clients send.
func fieldsOfFrames(t *testing.T) []string {
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(documents.AsyncAPI("test"), &doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, name := range []string{"Ack", "AckFrame", "SendFrame"} {
		maps.Copy(all, doc.Components.Schemas[name].Properties)
	}
	return slices.Sorted(maps.Keys(all))
}

const historyRoute, socketRoute = "/api/v1/mecha/{mechaId}/messages", "/api/v1/ws/mecha/{mechaId}"

func queryOf(doc *openapi3.T, path string) (names []string) {
	for _, p := range doc.Paths.Value(path).Get.Parameters {
		if p.Value.In == "query" {
			names = append(names, p.Value.Name)
		}
	}
	return names
}
