package http_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"relay/http/docs"
)

const apiPageHead = `# The API, call by call

For authors of clients: every request as ` + "`curl`" + ` and in Python.
The line before ` + "`curl` is the same request as `relay curl`" + `, which signs automatically. <!-- agent -->
<!-- documents -->
Programs read ` + "`/openapi.json`" + ` (OpenAPI 3.1) and, for the frames of the WebSocket, ` + "`/asyncapi.json`" + `
(AsyncAPI 3.0); ` + "`relay openapi`" + ` and ` + "`relay asyncapi`" + ` print them.
<!-- /documents -->
<!-- agent: relay curl -->

## Setting up

Set ` + "`RELAY_URL`, as in `http://127.0.0.1:8080`, and `RELAY_KEY`" + `, here the key of ` + "`alice^demo`" + `, which
sends to itself. Set ` + "`id`, `conversation` and `search` from the responses. `curl`" + ` and Python
[sign](signing.md) by hand:

` + "```sh" + `
sign() {
  n=$(openssl rand -hex 16) t=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  s=$(printf %s "$1|$n|$t" | openssl dgst -sha256 -hmac "$RELAY_KEY" -binary | openssl base64)
  printf 'X-Mecha-Key: %s\nX-Nonce: %s\nX-Request-Timestamp: %s\nX-Signature: %s\n' "$RELAY_KEY" $n $t $s
}
` + "```" + `

` + "```python" + `
import base64, hashlib, hmac, json, os, secrets, time
from urllib.request import Request, urlopen
url, key = os.environ['RELAY_URL'], os.environ['RELAY_KEY']
def call(method, path, body=None, **headers):
    data = b'' if body is None else json.dumps(body).encode()
    n, t = secrets.token_hex(16), time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())
    s = hmac.new(key.encode(), data + f'|{n}|{t}'.encode(), hashlib.sha256).digest()
    headers |= {'X-Mecha-Key': key, 'X-Nonce': n, 'X-Request-Timestamp': t, 'X-Signature': base64.b64encode(s)}
    return urlopen(Request(url + path, data or None, headers, method=method)).read()
` + "```" + `
`

// described is what the page shows of an operation of the document.
type described struct {
	Summary, Description string
	ExternalDocs         struct{ URL string }
	Parameters           []struct {
		Ref string `json:"$ref"`
	}
	RequestBody struct {
		Content map[string]struct {
			Schema struct {
				Ref string `json:"$ref"`
			}
			Example json.RawMessage
		}
	}
	Responses map[string]struct {
		Content map[string]struct {
			Schema struct {
				Properties struct{ Code struct{ Enum []string } }
			}
		}
	}
	Security []any
}

// The page shows every operation of the document. Its examples run (docs_test.go at the root).
func TestTheAPIPage(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]described
		Components struct {
			Parameters map[string]struct{ Name, In string }
			Schemas    map[string]struct {
				Required   []string
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal(openAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	page := apiPageHead + "\n## With a key\n\nAny request with a key can also be refused for its headers, size or rate: see the\n" +
		"[order of checks](protocol.md#order-of-checks).\n"
	var list, shell string // of the operations without a key
	for _, row := range rows(t) {
		o := doc.Paths[row[2]][strings.ToLower(row[1])]
		body := o.RequestBody.Content["application/json"]
		ofShell, ofPython := exampleOf(row[1], row[2], compact(t, body.Example), o.Security != nil)
		if o.Security == nil {
			list += fmt.Sprintf("- `%s %s`: %s%s%s\n", row[1], row[2], o.Summary,
				strings.Replace(listed("Refusals", o.codes()), "\n", " ", 1), markOf[row[2]])
			shell += ofShell
			continue
		}
		var query, header []string
		for _, p := range o.Parameters {
			switch of := doc.Components.Parameters[last(p.Ref)]; {
			case of.In == "query":
				query = append(query, of.Name)
			case of.In == "header" && !strings.HasPrefix(of.Name, "X-"):
				header = append(header, of.Name)
			}
		}
		schema := doc.Components.Schemas[last(body.Schema.Ref)]
		optional := slices.DeleteFunc(slices.Sorted(maps.Keys(schema.Properties)), func(name string) bool { return slices.Contains(schema.Required, name) })
		page += fmt.Sprintf("\n#### %s %s\n\n%s %s%s%s%s%s\n[Rules](%s).\n", row[1], row[2], o.Summary, o.Description,
			listed("Query", query), listed("Headers", header), listed("Body", append(schema.Required, optional...)), listed("Refusals", o.codes()),
			strings.Replace(strings.TrimPrefix(o.ExternalDocs.URL, "/docs/"), "#", ".md#", 1))
		if strings.HasSuffix(row[2], "/ticket") {
			continue // its rules lead to an example
		}
		if ofShell == "" {
			page += "\nThe page [sockets](sockets.md) shows how to open one.\n"
			continue
		}
		page += "\n```sh\n" + ofShell + "```\n\n```python\n" + ofPython + "```\n"
	}
	page += "\n## Without a key\n\n[Rules](protocol.md#9-around-the-api):\n\n" + list + "\n```sh\n" + shell + "```\n"
	const file = "docs/api.md"
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text, err := os.ReadFile(file); err != nil || page != strings.ReplaceAll(string(text), "\r\n", "\n") {
		t.Errorf("%s is not what the document says (%v); write it anew: go test ./http -run TestTheAPIPage -update", file, err)
	}
	if size := len(docs.HTML().Pages["api"]); size >= 20_000 {
		t.Errorf("the page has %d bytes", size)
	} else {
		t.Logf("the page has %d bytes, as sent", size)
	}
}

// markOf has the marks of what rings add.
var markOf = map[string]string{"/metrics": " <!-- metrics -->", "/openapi.json": " <!-- documents -->",
	"/asyncapi.json": " <!-- documents -->"}

func listed(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("\n%s: `%s`.", what, strings.Join(names, " "))
}

// codes returns the refusals of an operation, without those of every request with a key.
func (o *described) codes() (all []string) {
	for _, r := range o.Responses {
		all = append(all, r.Content["application/problem+json"].Schema.Properties.Code.Enum...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(code string) bool {
		return o.Security != nil && slices.Contains([]string{"missing_header", "malformed_header", "malformed_key", "unknown_key", "key_revoked", "key_expired",
			"timestamp_out_of_range", "signature_required", "invalid_signature", "nonce_reused", "invalid_request", "rate_limited", "too_many_failures", "internal", "overloaded", "shutting_down", "not_current", "not_found"}, code)
	})
}

func last(ref string) string { return ref[strings.LastIndex(ref, "/")+1:] }

func compact(t *testing.T, text []byte) string {
	var b bytes.Buffer
	if text != nil {
		if err := json.Compact(&b, text); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// exampleOf returns the lines of a request in the shell, and in Python; none for a socket.
func exampleOf(method, path, body string, withKey bool) (shell, python string) {
	if strings.Contains(path, "/ws/") || strings.HasSuffix(path, "/ticket") {
		return "", ""
	}
	query, preference := "", ""
	switch {
	case strings.HasSuffix(path, "{mechaId}/messages"):
		query = "?state=pending&wait=1"
	case path == searches:
		preference = "wait=1"
	}
	fill := func(before, after string) string {
		return strings.NewReplacer("{mechaId}", "alice^demo", "{page}", "signing.md", "{messageId}", before+"id"+after,
			"{conversationId}", before+"conversation"+after, "{requestId}", before+"search"+after).Replace(path) + query
	}
	target := fill("$", "")
	url := `"$RELAY_URL` + target + `"`
	if query != "" {
		target = "'" + target + "'"
	}
	sign, curl, data, header := "sign | ", "curl -sSH @- ", "", ""
	if body != "" {
		shell, data = "body='"+body+"'\n", ` "$body"`
		sign, curl = `sign "$body" | `, curl+`-d "$body" `
	}
	if method == "PUT" || method == "POST" && body == "" {
		curl += "-X " + method + " "
	}
	if preference != "" {
		header = " -H 'Prefer: " + preference + "'"
		curl += header[1:] + " "
	}
	if !withKey {
		sign, curl = "", "curl -sS "
	}
	if path == "/" { // it leads to /docs
		curl = "curl -sSL "
	} else if withKey {
		shell += "relay curl " + method + " " + target + data + header + "\n"
	}
	shell += sign + curl + url + "\n"

	python = "call('" + method + "', "
	if strings.Contains(target, "$") {
		python += "f"
	}
	python += "'" + fill("{", "}") + "'"
	if body != "" {
		python += ", " + body
	}
	if preference != "" {
		python += ", Prefer='" + preference + "'"
	}
	return shell, python + ")\n"
}
