package http_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"relay/db/relay"
)

// abuse is one search that means no good, and the answer that PROTOCOL §5 and
// §6 have for it. No code: it is a search like any other.
type abuse struct {
	name  string
	body  string
	code  relay.Code
	field string // that is named
}

func query(q string) string { return member("query", q) }

// many returns n values as JSON, of a pattern with one %d.
func many(n int, pattern string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, pattern, i)
	}
	return b.String()
}

// Words that mean something to a search engine, a database, a shell or a
// terminal, and here are words.
func abusiveQueries() (all []abuse) {
	for name, q := range map[string]string{
		"a wildcard":         "*",
		"wildcards":          strings.Repeat("f?i*g*t ", 240),
		"a regex":            "/(a|aa|a?)+$/",
		"a catastrophic one": "/" + strings.Repeat("(a+)+", 390) + "$/",
		"query string":       `+name:"hotel"~9^99 -crew:acme AND (visibility:crew OR *:*) && [a TO z] {x TO y}`,
		"fields":             strings.Repeat("visibility:crew h: i:acme f:h ", 60),
		"bleve JSON":         `{"query":{"match_all":{}},"size":100000,"explain":true}`,
		"nested bleve JSON":  strings.Repeat(`{"conjuncts":[{"regexp":".*"},`, 60),
		"SQL":                `'; DROP TABLE profile; -- " OR 1=1 UNION SELECT hash FROM mecha_key`,
		"FTS5":               `"NEAR(" * NOT hotel ^hotel {name}: x`,
		"a shell":            "$(rm -rf /) `id` | cat /etc/passwd; ${jndi:ldap://x}",
		"HTML":               `<script>alert(1)</script><img src=x onerror=y>`,
		"a format":           strings.Repeat("%s%n%x%d", 200),
		"a template":         "{{.}} {{printf \"%v\" .}} ${7*7}",
		"a path":             "../../../../etc/passwd\x00.json",
		"one long word":      strings.Repeat("a", 2000),
		"one long known":     "hotel" + strings.Repeat("s", 1995),
		"humps":              strings.Repeat("aB", 1000),
		"marks":              "a" + strings.Repeat("\u0301", 1999),
		"of four bytes each": strings.Repeat("\U0001F680", 2000),
		"ideographs":         strings.Repeat("天気予報", 500),
		"emoji of seven":     strings.Repeat("👩‍👩‍👧‍👦", 285),
		"Zalgo":              strings.Repeat("h\u0300\u0316o\u0321t\u0338", 250),
		"bidi controls":      "\u202e\u2066\u202dletoh\u2069",
		"controls":           "\x00\x01\x02\x07\x08\x1b[31mhotel\x1b[0m\x7f\u0085\u2028\ufeff",
		"NULs":               strings.Repeat("\x00", 2000),
		"noncharacters":      "\ufffe\uffff\U0010ffff\ufffd",
		"carets":             strings.Repeat("^", 2000),
		"addresses":          strings.Repeat("a^b ", 500),
		"an address and NUL": "hotels^acme\x00",
		"letters":            strings.Repeat("a b c d e f g h i j k l m n o p q r s t u v w x y z ", 38),
		"64 and more words":  strings.ReplaceAll(many(400, "w%d"), ",", " "),
		"misspelled":         strings.Repeat("hotle fligth invioce recipt trvael bokoing ", 45),
		"sentences":          strings.Repeat("hotel. ", 285),
		"lines":              strings.Repeat("hotel\n", 333),
		"numbers":            strings.Repeat("9999999999999999999 1e999 -0 NaN ", 58),
	} {
		all = append(all, abuse{name, query(q), "", ""})
	}
	return all
}

func abusiveRequests() []abuse {
	wide := func(key string, n int) string {
		return `{"query":"hotel","filter":{"` + key + `":[` + many(n, `"v%d"`) + `]}}`
	}
	filter := func(f string) string { return `{"query":"hotel","filter":` + f + `}` }
	all := []abuse{
		{"2,001 characters", query(strings.Repeat("é", 2001)), relay.InvalidRequest, "query"},
		{"64 KiB of query", query(strings.Repeat("x ", 32<<10)), relay.InvalidRequest, "query"},
		{"64 KiB around a query", `{"query":"hotel","x":"` + strings.Repeat("x", 64<<10) + `"}`, "", ""},
		{"more than a body may have", query(strings.Repeat("x", 1<<20)), relay.PayloadTooLarge, ""},
		{"64 KiB of unknown fields", `{"query":"hotel",` + many(4000, `"unknown%d":[{}]`) + `}`, "", ""},
		{"only space", query(" \t\r\n\u00a0\u3000"), relay.InvalidRequest, "query"},

		{"10,000 nested filters", `{"query":"hotel",` + strings.Repeat(`"filter":{`, 10_000) + strings.Repeat("}", 10_001), relay.InvalidJSON, ""},
		{"10,000 nested lists", filter(`{"tags":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`), relay.InvalidJSON, ""},
		{"a nested filter", filter(`{"filter":{"tags":["a"]}}`), relay.InvalidRequest, "filter.filter"},
		{"boolean filters", filter(`{"or":[{"tags":["a"]}]}`), relay.InvalidRequest, "filter.or"},
		{"a filter's key in capitals", filter(`{"Tags":["a"]}`), relay.InvalidRequest, "filter.Tags"},
		{"a filter twice", `{"filter":{"tags":["a"]},"filter":{"tags":["b"]}}`, relay.InvalidJSON, ""},
		{"a filter's key twice", filter(`{"tags":["a"],"tags":["b"]}`), relay.InvalidJSON, ""},
		{"a filter's key of 64 KiB", filter(`{"` + strings.Repeat("k", 64<<10) + `":1}`), relay.InvalidRequest, "filter." + strings.Repeat("k", 80) + "…"},
		{"a filter's value of 64 KiB", filter(`{"tags":["` + strings.Repeat("/", 64<<10) + `"]}`), "", ""},
		{"odd values", filter(`{"tags":["","/","//","*","\u0000","\ud83d\ude80"],"crew":["*","^",""],"exclude":["","^","*","%"]}`), "", ""},
		{"nulls in a list", filter(`{"tags":[null,null]}`), "", ""},
		{"empty lists", `{"query":"hotel","filter":{"crew":[],"tags":[],"skills":[],"languages":[],"message_types":[],"exclude":[]},"facets":[]}`, "", ""},
		{"nulls everywhere", `{"query":"hotel","filter":null,"sort":null,"limit":null,"cursor":null,"facets":null,"highlight":null,"explain":null}`, "", ""},
		{"nulls in the filter", filter(`{"crew":null,"tags":null,"skills":null,"languages":null,"message_types":null,"online":null,"updated_since":null,"exclude":null}`), "", ""},
		{"everything excluded", `{"filter":{"exclude":["hotels^acme"]}}`, "", ""},
		{"nothing but nulls", `{"query":null,"filter":null}`, relay.InvalidRequest, "query"},
		{"a time far away", filter(`{"updated_since":"9999-12-31T23:59:59Z"}`), "", ""},
		{"a time long ago", filter(`{"updated_since":"0001-01-01T00:00:00Z"}`), "", ""},
		{"a time with a comma", filter(`{"updated_since":"2026-01-02T03:04:05,5Z"}`), relay.InvalidTime, "filter.updated_since"},

		{"100,000 facets", `{"query":"hotel","facets":[` + strings.TrimSuffix(strings.Repeat(`"tags",`, 100_000), ",") + `]}`, "", ""},
		{"a facet of 64 KiB", `{"query":"hotel","facets":["` + strings.Repeat("f", 64<<10) + `"]}`, relay.InvalidRequest, "facets"},
		{"a sort of 64 KiB", `{"query":"hotel","sort":"` + strings.Repeat("s", 64<<10) + `"}`, relay.InvalidRequest, "sort"},
		{"a sort by SQL", `{"query":"hotel","sort":"name; DROP TABLE mecha"}`, relay.InvalidRequest, "sort"},
		{"a huge limit", `{"query":"hotel","limit":2147483648}`, "", ""},
		{"a limit beyond 64 bits", `{"query":"hotel","limit":99999999999999999999}`, relay.InvalidLimit, "limit"},
		{"a limit beyond floats", `{"query":"hotel","limit":1e999}`, relay.InvalidLimit, "limit"},
		{"a limit of 64 KiB", `{"query":"hotel","limit":` + strings.Repeat("9", 64<<10) + `}`, relay.InvalidLimit, "limit"},
		{"a query of digits", `{"query":` + strings.Repeat("9", 64<<10) + `}`, relay.InvalidRequest, "query"},
		{"half a limit", `{"query":"hotel","limit":0.5}`, relay.InvalidLimit, "limit"},
		{"a very negative limit", `{"query":"hotel","limit":-9223372036854775808}`, relay.InvalidLimit, "limit"},
		{"a cursor of 64 KiB", `{"query":"hotel","cursor":"` + strings.Repeat("A", 64<<10) + `"}`, relay.InvalidRequest, "cursor"},
		{"no JSON", `query=hotel`, relay.InvalidJSON, ""},
		{"invalid UTF-8", "{\"query\":\"\xff\xfe\"}", relay.InvalidJSON, ""},
		{"a lone surrogate", `{"query":"\ud800"}`, relay.InvalidJSON, ""},
		{"a raw control character", "{\"query\":\"a\x01\"}", relay.InvalidJSON, ""},
		{"two objects", `{"query":"a"}{"query":"b"}`, relay.InvalidJSON, ""},
		{"a look-alike key", "{\"query\":\"a\",\"\u017fort\":\"name\"}", relay.InvalidJSON, ""},
	}
	for _, key := range []string{"crew", "tags", "skills", "languages", "message_types", "exclude"} {
		all = append(all, abuse{"256 of " + key, wide(key, 256), "", ""},
			abuse{"257 of " + key, wide(key, 257), relay.InvalidRequest, "filter." + key},
			abuse{"10,000 of " + key, wide(key, 10_000), relay.InvalidRequest, "filter." + key})
	}
	for _, c := range []string{"0", "-1", "MTAwMDE", "OTk5OTk5OTk5OTk5OTk5OTk5OTk", "MjAuMA", "LTEuMA", "' OR 1=1", "\u0000", "%00", "../x", "eyJvZmZzZXQiOjF9", "=", "AA=="} {
		all = append(all, abuse{"the cursor " + c, `{"query":"hotel",` + member("cursor", c)[1:], relay.InvalidRequest, "cursor"})
	}
	return all
}

// Every field refuses every type that is not its own, by name.
func abusiveTypes() (all []abuse) {
	takes := map[string]string{"query": "string", "filter": "object", "sort": "string", "limit": "number", "cursor": "string", "facets": "list",
		"highlight": "bool", "explain": "bool", "filter.crew": "string list", "filter.tags": "string list", "filter.skills": "string list",
		"filter.languages": "string list", "filter.message_types": "string list", "filter.exclude": "string list", "filter.online": "bool", "filter.updated_since": "string"}
	values := map[string]string{"string": `"2026-01-01T00:00:00Z"`, "number": "5", "bool": "true", "list": `["x"]`, "object": `{"x":{}}`, "list of lists": `[["x"]]`, "list of numbers": `[1]`, "list of objects": `[{}]`}
	for field, types := range takes {
		for kind, value := range values {
			if slices.Contains(strings.Fields(types), kind) {
				continue
			}
			body := `{"query":"hotel","` + field + `":` + value + `}`
			if inner, ok := strings.CutPrefix(field, "filter."); ok {
				body = `{"query":"hotel","filter":{"` + inner + `":` + value + `}}`
			} else if field == "query" {
				body = `{"query":` + value + `}`
			}
			code := relay.InvalidRequest
			if field == "limit" {
				code = relay.InvalidLimit
			}
			all = append(all, abuse{"a " + kind + " for " + field, body, code, field})
		}
	}
	return all
}

// wantAbuse asks it, and expects the documented answer.
func (m mecha) wantAbuse(c abuse) reply {
	m.r.t.Helper()
	a := m.post(searches, c.body, now)
	switch {
	case c.code == relay.PayloadTooLarge:
		a.wantProblem(413, c.code)
	case c.field != "":
		a.wantFault(400, c.code, c.field)
	case c.code != "":
		a.wantProblem(400, c.code)
	default:
		var f found
		a.want(200).into(&f)
		if f.Status != "completed" || f.Total < len(f.Results) || len(f.Results) > 100 {
			m.r.t.Errorf("%s: %s", c.name, a.body)
		}
		for _, hit := range f.Results {
			if hit.Name == "secret" || hit.Name == "hidden" {
				m.r.t.Errorf("%s finds %s", c.name, hit.MechaID)
			}
		}
	}
	if c.code != "" && len(a.body) > 4096 {
		m.r.t.Errorf("%s: a refusal of %d bytes", c.name, len(a.body))
	}
	return a
}

// The abuse table: no 5xx, no panic, each with the documented answer. There is
// no query syntax, so there is none to abuse.
func TestSearchAbuse(t *testing.T) {
	t.Parallel()
	_, alice, _ := directory(t)
	for _, c := range slices.Concat(abusiveQueries(), abusiveRequests(), abusiveTypes()) {
		t.Run(c.name, func(t *testing.T) {
			alice.in(t).wantAbuse(c) // the client gives up one that hangs
		})
	}
	alice.get(searches+"/"+strings.Repeat("s", 8000)).wantProblem(404, relay.SearchNotFound)
	alice.get(searches+"/srch_%00%27%3B--").wantProblem(404, relay.SearchNotFound)
	alice.get(searches+"/*").wantProblem(404, relay.SearchNotFound)
	if f := alice.mustFind(`{"query":"hotel"}`); len(f.Results) == 0 {
		t.Errorf("after all that: %+v", f)
	}
}

// A cursor moved by hand leads nowhere that paging does not.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	_, alice, _ := directory(t)
	f := alice.mustFind(`{"filter":{"crew":["acme"]},"limit":1}`)
	if f.NextCursor == nil {
		t.Fatalf("%+v", f)
	}
	for _, body := range []string{`"query":"hotel"`, `"filter":{"crew":["beta"]}`, `"filter":{"crew":["acme"]},"sort":"name"`, `"filter":{"crew":["acme"],"online":true}`} {
		alice.post(searches, `{`+body+`,"cursor":"`+*f.NextCursor+`"}`).wantFault(400, relay.InvalidRequest, "cursor")
	}
	f = alice.mustFind(`{"filter":{"crew":["acme"]},"limit":100,"cursor":"` + *f.NextCursor + `"}`)
	for _, hit := range f.Results {
		if hit.Name == "secret" || hit.Name == "hidden" {
			t.Errorf("finds %s", hit.MechaID)
		}
	}
}

// A profile can be as odd as it likes: it is found, and its neighbours too.
func TestOddProfilesAreFound(t *testing.T) {
	t.Parallel()
	r, alice, _ := directory(t)
	odd := map[string]any{
		"display_name": "\x1b[31m🚀\u202e" + strings.Repeat("W", 190), "description": strings.Repeat("aB", 1000), "details": strings.Repeat("x", 16_000),
		"tags": []string{"🚀/*", "h", "i:acme", "t:x", "\u202e"}, "languages": []string{"", " ", "*"}, "examples": []string{strings.Repeat("\x00", 300)},
		"skills": slices.Repeat([]any{map[string]any{"id": "\n\t\x1b]0;x\a", "name": strings.Repeat("^", 200), "description": "zzyzx"}}, 100),
	}
	text, err := json.Marshal(odd)
	if err != nil {
		t.Fatal(err)
	}
	r.mustIssue("odd^acme").put(string(text)).want(200)
	r.mustIndex()
	f := alice.mustFind(`{"query":"zzyzx","highlight":true,"explain":true,"facets":["crew","tags","languages"]}`)
	if len(f.Results) != 1 || f.Results[0].MechaID != "odd^acme" {
		t.Errorf("%+v", f)
	}
	if f = alice.mustFind(`{"query":"hotel rooms"}`); len(f.Results) == 0 || f.Results[0].MechaID != "hotels^acme" {
		t.Errorf("%+v", f)
	}
	if f = alice.mustFind(`{"filter":{"tags":["h"]}}`); !slices.Equal(f.addresses(), []string{"odd^acme"}) { // not the mark of who is hidden
		t.Errorf("%v", f.addresses())
	}
}
