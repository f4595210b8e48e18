package mcp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"relay/cmd/mcp"
)

// post has Handler answer a body.
func post(api http.Handler, body, version string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if version != "" {
		r.Header["Mcp-Protocol-Version"] = []string{version}
	}
	w := httptest.NewRecorder()
	handler(api, "a^b", "key").ServeHTTP(w, r)
	return w
}

var handler = mcp.Handler("dev")

// Whatever a client sends, a relay that answers nothing it can use gives it an answer, and
// nothing panics: a panic in one of the SDK's goroutines would end the relay.
func FuzzHandler(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_message","arguments":{"to":"a^b","payload":{},"wait_reply_seconds":1}}}`,
		`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"check_inbox","arguments":{"limit":1e9,"after":"/"},"_meta":{"traceparent":1,"progressToken":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ack_message","arguments":{"message_ids":["a","b"]},"_meta":null}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find_agents","arguments":{"query":"x"},"inputResponses":{"a":null},"requestState":"x"}}`,
		`{"jsonrpc":"2.0","id":null,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":null,"clientInfo":null}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`, `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x"]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt"}}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}`,
	} {
		f.Add(seed, "", `{}`, 200)
		f.Add(seed, "2026-07-28", `{"messages":[{"payload":{"a":"😀"},"ack":{}}],"results":[{}],"steps":[{}]}`, 201)
		f.Add(seed, "2025-11-25", `{"code":"rate_limited","did_you_mean":["x"]}`, 429)
	}
	f.Fuzz(func(t *testing.T, body, version, answer string, status int) {
		if status < 200 || status > 599 || strings.HasPrefix(strings.TrimSpace(body), "[") {
			return
		}
		api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			w.Write([]byte(answer))
		})
		if w := post(api, body, version); w.Code == 0 {
			t.Error("no answer")
		}
	})
}

func BenchmarkHandler(b *testing.B) {
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{}`)) })
	for b.Loop() {
		if w := post(api, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"message_status","arguments":{}}}`, "2025-11-25"); w.Code != 200 {
			b.Fatal(w.Code, w.Body)
		}
	}
}
