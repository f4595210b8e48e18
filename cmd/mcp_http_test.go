package cmd_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// bearer shows a key in every request.
type bearer struct {
	key  string
	base http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return b.base.RoundTrip(r)
}

// newRemoteLLM is newLLM over HTTP.
func newRemoteLLM(t testing.TB, url string, a agent, version string, base *http.Client) *llm {
	t.Helper()
	m := &llm{t: t, stderr: newOutput()}
	m.connect(&mcp.StreamableClientTransport{Endpoint: url + "/mcp", DisableStandaloneSSE: true, MaxRetries: -1,
		HTTPClient: &http.Client{Transport: bearer{a.Key, base.Transport}}}, version)
	return m
}

// The tools are the same at /mcp, with every version of the protocol, and what they send
// is not signed, since nobody has signed it.
func TestMCPOverHTTP(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "planner^acme", "flights^acme")
	secret := issue(t, db, "secret^acme", "--signing-secret")[0]
	s := startServer(t, db, "--mcp")
	for _, version := range protocolVersions {
		t.Run(version, func(t *testing.T) {
			a, b := newRemoteLLM(t, s.url, keys[0], version, client), newLLM(t, s.url, keys[1], version)
			if got := a.session.InitializeResult().Instructions; !strings.Contains(got, "You are the agent planner^acme") {
				t.Errorf("instructions: %s", got)
			}
			answered := make(chan said, 1)
			go func() {
				got, err := a.callIn(t.Context(), "send_message", `{"to":"flights^acme","payload":{"price":180.00},"wait_reply_seconds":25}`, nil)
				if err != nil {
					t.Error(err)
				}
				answered <- got
			}()
			in := b.call("check_inbox", `{"wait_seconds":25}`).ok()
			if in.Messages[0].Signed || string(in.Messages[0].Payload) != `{"price":180.00}` {
				t.Errorf("%+v", in)
			}
			b.call("send_message", `{"in_reply_to":"`+in.Messages[0].ID+`","payload":{"seat":"12A"}}`).ok()
			b.call("ack_message", `{"message_ids":["`+in.Messages[0].ID+`"]}`).ok()
			got := (<-answered).ok()
			if got.Reply == nil || string(got.Reply.Payload) != `{"seat":"12A"}` || !got.Reply.Signed {
				t.Fatalf("%+v", got)
			}
			a.call("ack_message", `{"message_ids":["`+got.Reply.ID+`"]}`).ok()
			if in := a.call("check_inbox", `{}`).ok(); in.Pending != 0 {
				t.Errorf("%+v", in)
			}
			if f := a.call("send_message", `{"to":"flihgts^acme","payload":{}}`).fails("recipient_not_found"); len(f.DidYouMean) != 1 {
				t.Errorf("%+v", f)
			}
		})
	}
	if who := newRemoteLLM(t, s.url, secret, "", client).call("message_status", `{}`).ok(); who.You != "secret^acme" {
		t.Errorf("%+v", who)
	}
}

// postMCP sends a body to /mcp as it is. more are headers.
func postMCP(t testing.TB, c *http.Client, url, key, body string, more ...string) answer {
	t.Helper()
	header := http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	host := ""
	for i := 0; i+1 < len(more); i += 2 {
		if more[i] == "Host" {
			host = more[i+1]
		}
		header.Set(more[i], more[i+1])
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", url+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header, r.Host = header, host
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, text}
}

// Who has no key, comes from a page, or sends what costs much, is refused; a page that had
// its name resolved to this machine (DNS rebinding) is.
func TestMCPOverHTTPRefuses(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^refused", "b^refused")
	a := keys[0]
	s := startServer(t, db, "--mcp", "--max-body", "100000", "--log-level", "debug", "--allow-origin", "https://app.example")
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	call := toolCall(1, "message_status", `{}`)
	postMCP(t, client, s.url, a.Key, call).want(t, 200)
	for name, c := range map[string]struct {
		key, body string
		more      []string
		status    int
		code      string
	}{
		"no key":          {"", list, nil, 401, "malformed_header"},
		"no bearer":       {a.Key, list, []string{"Authorization", "Basic " + a.Key}, 401, "malformed_header"},
		"typo":            {a.Key[:len(a.Key)-1] + "-", list, nil, 401, "malformed_key"},
		"unknown":         {issue(t, tempDB(t), "a^refused")[0].Key, list, nil, 401, "unknown_key"},
		"page":            {a.Key, list, []string{"Origin", "https://evil.example"}, 403, "origin_not_allowed"},
		"file page":       {a.Key, list, []string{"Origin", "null"}, 403, "origin_not_allowed"},
		"rebinding":       {a.Key, list, []string{"Host", "evil.example"}, 403, "origin_not_allowed"},
		"rebinding, port": {a.Key, list, []string{"Host", "evil.example:80"}, 403, "origin_not_allowed"},
		"rebinding, page": {a.Key, list, []string{"Host", "evil.example", "Origin", "http://evil.example"}, 403, "origin_not_allowed"},
		"batch":           {a.Key, "[" + list + "," + list + "]", nil, 400, "invalid_json"},
		"nothing":         {a.Key, "", nil, 400, "invalid_json"},
		"deep":            {a.Key, toolCall(1, "send_message", `{"payload":`+strings.Repeat(`{"a":`, 100)+`{}`+strings.Repeat(`}`, 100)+`}`), nil, 400, "invalid_json"},
		"large":           {a.Key, toolCall(1, "send_message", `{"x":"`+strings.Repeat("x", 100_000)+`"}`), nil, 413, "payload_too_large"},
		"encoded":         {a.Key, list, []string{"Content-Encoding", "gzip"}, 415, "unsupported_encoding"},
	} {
		got := postMCP(t, client, s.url, c.key, c.body, c.more...)
		if got.wantProblem(t, c.status, c.code); c.status == 401 && got.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %v", name, got.header)
		}
	}
	for name, more := range map[string][]string{"allowed page": {"Origin", "https://app.example"}, "its own page": {"Origin", s.url}, "localhost": {"Host", "localhost:8080"}, "no host": {"Host", "[::1]:80"}} {
		if got := postMCP(t, client, s.url, a.Key, call, more...); got.status != 200 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	for _, method := range []string{"GET", "DELETE", "PUT"} {
		s.ask(a, method, "/mcp", "").wantProblem(t, 405, "method_not_allowed")
	}
	if got := postMCP(t, client, s.url, a.Key, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen"); got.status >= 500 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if strings.Contains(s.stderr.String(), a.Key) {
		t.Error("the key is in the log")
	}
	plain := startServer(t, tempDB(t))
	if got := postMCP(t, client, plain.url, a.Key, call); got.status != 404 {
		t.Errorf("without --mcp: %d", got.status)
	}
}

// Keys cross no network in the clear, and where signatures are required, nobody gets round
// them.
func TestMCPOverHTTPIsRefusedWhereItIsNotSafe(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--mcp --require-message-signature": "use relay mcp", "--mcp --require-request-signature": "use relay mcp",
		"--mcp --addr 0.0.0.0:0": "listen on a loopback address", "--mcp --addr [::]:0 --trusted-proxy 10.0.0.0/8": "listen on a loopback address",
	} {
		db := tempDB(t)
		runRefused(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--db", db}, strings.Fields(args)...), nil).wantCode(t, 2, "--mcp", says)
		wantFiles(t, filepath.Dir(db))
	}
}

func TestMCPOverTLS(t *testing.T) {
	t.Parallel()
	ca, db := newAuthority(t), tempDB(t)
	a := issue(t, db, "a^tls")[0]
	s := ca.startTLS(t, t.TempDir(), db, "--mcp", "--addr", "0.0.0.0:0")
	url := "https://localhost:" + s.url[strings.LastIndex(s.url, ":")+1:]
	if who := newRemoteLLM(t, url, a, "", ca.client()).call("message_status", `{}`).ok(); who.You != "a^tls" {
		t.Errorf("%+v", who)
	}
}

// requestMCP is a request to /mcp as it is on the line.
func requestMCP(s *server, a agent, body string) string {
	return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
		s.host(), a.Key, len(body), body)
}

// What one Mecha does at /mcp is charged to it: its rate, its waits. Another one does not
// notice, and a wait ends when its client goes.
func TestMCPOverHTTPIsCharged(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "greedy^acme", "other^acme")
	s := startServer(t, db, "--mcp", "--rate-limit", "20", "--rate-burst", "60", "--max-sockets-per-mecha", "3")
	other := newRemoteLLM(t, s.url, keys[1], "", client)
	wait := toolCall(1, "check_inbox", `{"wait_seconds":25}`)
	first := make(chan string, 4)
	var waits []net.Conn
	for range 4 { // one too many
		conn, err := net.Dial("tcp", s.host())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, requestMCP(s, keys[0], wait))
		waits = append(waits, conn)
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return
			}
			text, _ := io.ReadAll(resp.Body)
			first <- string(text)
		}()
	}
	if got := <-first; !strings.Contains(got, "too_many_sockets") {
		t.Errorf("the first answer to 4 waits: %s", got)
	}
	for _, conn := range waits {
		conn.Close()
	}
	began := time.Now()
	eventually(t, patience, "the waits have ended", func() bool { return !online(t, s, keys[1], "greedy^acme") })
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("they ended after %v, by themselves", took)
	}
	limited := answer{}
	for i := 0; i < 500 && limited.status != 429; i++ {
		limited = postMCP(t, client, s.url, keys[0].Key, toolCall(3, "message_status", `{}`))
	}
	limited.wantProblem(t, 429, "rate_limited")
	if who := other.call("message_status", `{}`).ok(); who.You != "other^acme" {
		t.Errorf("%+v", who)
	}
}

// Clients that send slowly, or do not read, hold up neither others nor the end of the relay.
func TestMCPOverHTTPBearsSlowClients(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "slow^acme", "other^acme")
	s := startProcess(t, db, "--mcp", "--max-connections", "40", "--body-timeout", "1s")
	payload := `{"text":"` + strings.Repeat("x", 90_000) + `"}`
	id := s.send(keys[1], "slow^acme", payload).MessageID
	for i := range 60 {
		body := toolCall(1, "read_message", `{"message_id":"`+id+`","max_chars":100000}`)
		request := requestMCP(s, keys[0], body)
		conn, err := net.Dial("tcp", s.host())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			fmt.Fprint(conn, request[:len(request)-10]) // and no more
		} else {
			fmt.Fprint(conn, request) // and reads nothing
		}
	}
	other := newRemoteLLM(t, s.url, keys[1], "", client)
	for range 5 {
		if who := other.call("message_status", `{}`).ok(); who.You != "other^acme" {
			t.Errorf("%+v", who)
		}
	}
	other.call("check_inbox", `{"wait_seconds":2}`).ok() // a wait may be longer than a body may take
	notOnWindows(t, "there is no SIGTERM")
	if code := s.terminate(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
