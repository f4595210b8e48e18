package documents_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"relay/http"
	"relay/http/documents"
)

// The document of the WebSocket is an AsyncAPI document, by AsyncAPI's own schema.
func TestTheDocumentOfTheSocketIsAsyncAPI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/asyncapi/3.0.0.json")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("asyncapi-3.0.0.json", schema); err != nil {
		t.Fatal(err)
	}
	meta, err := c.Compile("asyncapi-3.0.0.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(text []byte) error {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return meta.Validate(doc)
	}
	text = documents.AsyncAPI("test")
	if err := valid(text); err != nil {
		t.Errorf("%#v", err)
	}
	for _, edit := range [][2]string{{`"action": "send"`, `"action": "shout"`}, {`"channels"`, `"chanels"`}, {`"const": "sync"`, `"type": 7`}, {`"protocol": "ws"`, `"protocols": "ws"`}} {
		if wrong := strings.Replace(string(text), edit[0], edit[1], 1); wrong == string(text) || valid([]byte(wrong)) == nil {
			t.Errorf("it could say %s as well", edit[1])
		}
	}
}

// Every reference of the document leads somewhere.
func TestTheReferencesOfTheDocumentsLeadSomewhere(t *testing.T) {
	for name, text := range map[string][]byte{"OpenAPI": documents.OpenAPI(http.Routes(), "test"), "AsyncAPI": documents.AsyncAPI("test")} {
		var doc any
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		n := 0
		var walk func(any)
		walk = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, x := range v {
					walk(x)
				}
			case map[string]any:
				for _, x := range v {
					walk(x)
				}
				ref, is := v["$ref"].(string)
				if !is {
					return
				}
				n++
				at := doc
				for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
					m, _ := at.(map[string]any)
					at = m[part]
				}
				if at == nil {
					t.Errorf("%s: %s leads nowhere", name, ref)
				}
			}
		}
		walk(doc)
		if n < 30 {
			t.Errorf("%s: only %d references were found", name, n)
		}
	}
}
