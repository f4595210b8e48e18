package cmd_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// card reads a Mecha's agent card.
func (d *door) card(path string, header http.Header) answer {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), "GET", d.url+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header = header
	resp, err := client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, body}
}

const a2aCard = "/.well-known/agent-card.json"

type a2aAgentCard struct {
	Name, Description   string
	SupportedInterfaces []struct{ URL, ProtocolBinding, ProtocolVersion string }
	Skills              []struct {
		ID   string
		Tags []string
	}
	SecurityRequirements []any
}

// The card is the profile's, in the form that the specification demands; it says how the
// Mecha is reached, and what a client must show.
func TestA2ACards(t *testing.T) {
	t.Parallel()
	s, d, keys := newDoor(t)
	if bare := d.card("/a2a/planner^a2a"+a2aCard, nil); true {
		wantA2A(t, "AgentCard", bare.want(t, 200)) // of a Mecha without a profile
	}
	s.ask(keys[1], "PUT", "/api/v1/mecha/planner^a2a/profile", `{"display_name":"Planner","description":"plans journeys","skills":[{"id":"plan","name":"Plan","input_modes":["text","text/plain"]},{"name":"Book","tags":["travel"],"examples":["to LIS"]}]}`).want(t, 200)
	got := d.card("/a2a/planner%5Ea2a"+a2aCard, nil)
	body := got.want(t, 200)
	wantA2A(t, "AgentCard", body)
	c := parse[a2aAgentCard](t, body)
	if c.Name != "Planner" || c.Description != "plans journeys" || len(c.Skills) != 2 || c.Skills[1].ID != "Book" || len(c.Skills[0].Tags) == 0 || len(c.SecurityRequirements) != 0 ||
		c.SupportedInterfaces[0].URL != d.url+"/a2a/planner%5Ea2a" || c.SupportedInterfaces[0].ProtocolBinding != "JSONRPC" || c.SupportedInterfaces[0].ProtocolVersion != "1.0" {
		t.Errorf("%s", body)
	}
	if d.card("/a2a/planner^a2a"+a2aCard, http.Header{"If-None-Match": {got.header.Get("ETag")}}).status != 304 || got.header.Get("Cache-Control") == "" {
		t.Errorf("%v", got.header)
	}

	// Of other Mechas there is none, and no call reaches them: unlisted ones, those of
	// other crews that hide, the gateway itself, and those that there are not.
	s.ask(keys[2], "PUT", "/api/v1/mecha/hidden^a2a/profile", `{"visibility":"unlisted"}`).want(t, 200)
	secret := issue(t, s.db, "secret^inner")[0]
	s.ask(secret, "PUT", "/api/v1/mecha/secret^inner/profile", `{"visibility":"crew"}`).want(t, 200)
	for _, name := range []string{"hidden^a2a", "secret^inner", "gateway^a2a", "nobody^a2a"} {
		d.card("/a2a/"+name+a2aCard, nil).want(t, 404)
		if got, err := d.raw(name, `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":`+a2aSays("1", "x", "")+`}`, nil); err != nil || got.status != 404 {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	d.card(a2aCard, nil).want(t, 404)

	// --offer names them, with a token for the calls.
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-for-the-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d = startDoor(t, s, keys[0], "--offer", "hidden^a2a", "--token-file", token, "--public-url", "https://agents.example.com/door/", "--as", "gateway^a2a")
	body = d.card(a2aCard, nil).want(t, 200)
	wantA2A(t, "AgentCard", body)
	if c = parse[a2aAgentCard](t, body); c.SupportedInterfaces[0].URL != "https://agents.example.com/door/a2a/hidden%5Ea2a" || len(c.SecurityRequirements) != 1 {
		t.Errorf("%s", body)
	}
	for _, wrong := range []string{"", "another-token-for-it", "a-token-for-the-tes"} {
		d.token = wrong
		got, err := d.raw("hidden^a2a", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}`, nil)
		if err != nil || got.status != 401 {
			t.Errorf("%q: %+v %v", wrong, got, err)
		}
	}
	d.card("/a2a/planner^a2a"+a2aCard, nil).want(t, 401) // who is not named is told to nobody
	d.token = "a-token-for-the-test"
	if got := d.call("hidden^a2a", "SendMessage", atOnce(a2aSays("1", "hello", ""))).sent(); got.Status.State != "TASK_STATE_SUBMITTED" {
		t.Errorf("%+v", got)
	}
	if got, err := d.raw("planner^a2a", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}`, nil); err != nil || got.status != 404 {
		t.Errorf("%+v %v", got, err)
	}
	// Who the gateway may not write to says so.
	s.ask(keys[2], "PUT", "/api/v1/mecha/hidden^a2a/profile", `{"accept_from":["planner^a2a"]}`).want(t, 200)
	d.call("hidden^a2a", "SendMessage", a2aSays("2", "hello", "")).fails(-32004, "the relay refuses the message")
}

// A request that is not a valid call gets the error that the specifications name. Nothing is
// stored.
func TestA2ARefuses(t *testing.T) {
	t.Parallel()
	s, d, keys := newDoor(t)
	good := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":` + a2aSays("1", "x", "") + `}`
	message := func(fields string) string { return `{"message":{` + fields + `}}` }
	for _, c := range []struct {
		body string
		code int
		says string
	}{
		{"", -32700, "invalid JSON"}, {"{", -32700, "invalid JSON"}, {good + "x", -32700, "data after"}, {"\xff", -32700, "UTF-8"}, {`"x"`, -32700, "expected an object"},
		{strings.Repeat(`{"params":`, 100) + `{}` + strings.Repeat(`}`, 100), -32700, "nested"},
		{strings.Replace(good, `"id":1`, `"id":1,"id":2`, 1), -32700, "duplicate"},
		{"[" + good + "]", -32600, "batch"}, {" \n[]", -32600, "batch"},
		{strings.Replace(good, `"id":1,`, ``, 1), -32600, "id is missing"},
		{strings.Replace(good, `"id":1,`, `"id":null,`, 1), -32600, "id must be"},
		{strings.Replace(good, `"id":1,`, `"id":{},`, 1), -32600, "id must be"},
		{strings.Replace(good, `"id":1,`, `"id":true,`, 1), -32600, "id must be"},
		{strings.Replace(good, `"id":1,`, `"id":"`+strings.Repeat("x", 300)+`",`, 1), -32600, "id must be"},
		{strings.Replace(good, `2.0`, `1.0`, 1), -32600, "jsonrpc"},
		{strings.Replace(good, `"SendMessage"`, `7`, 1), -32600, "method"},
		{strings.Replace(good, `SendMessage`, `message/send`, 1), -32601, "no such method"},
		{strings.Replace(good, `SendMessage`, `CreateTaskPushNotificationConfig`, 1), -32003, "push"},
		{strings.Replace(good, `SendMessage`, `ListTaskPushNotificationConfigs`, 1), -32003, "push"},
		{strings.Replace(good, `SendMessage`, `GetExtendedAgentCard`, 1), -32004, "card"},
		{`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":[]}`, -32602, "params must be an object"},
		{`{"jsonrpc":"2.0","id":1,"method":"SendMessage"}`, -32602, "message is required"},
		{`{"jsonrpc":"2.0","id":1,"method":"GetTask"}`, -32602, "id is required"},
		{`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"../../whoami"}}`, -32001, "no such task"},
		{`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"msg_0t3z1hj9e001xzqx8pz68qj0y4"}}`, -32001, "no such task"},
		{`{"jsonrpc":"2.0","id":1,"method":"CancelTask","params":{"id":7}}`, -32602, "id must be a string"},
		{`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":150}}`, -32602, "pageSize must be"},
		{`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"historyLength":-5}}`, -32602, "historyLength must be"},
		{`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"status":"TASK_STATE_RUNNING"}}`, -32602, "status must be"},
		{`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageToken":"%"}}`, -32602, "pageToken"},
		{`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"statusTimestampAfter":"yesterday"}}`, -32602, "statusTimestampAfter"},
	} {
		got, err := d.raw("planner^a2a", c.body, nil)
		if err != nil || got.status != 200 {
			t.Errorf("%.200s: %+v %v", c.body, got, err)
			continue
		}
		got.fails(c.code, c.says)
	}
	for params, says := range map[string]string{
		message(`"role":"ROLE_USER","parts":[{"text":"x"}]`):                                                               "message.messageId is required",
		message(`"messageId":"","role":"ROLE_USER","parts":[{"text":"x"}]`):                                                "message.messageId must not be empty",
		message(`"messageId":"a\u0000b","role":"ROLE_USER","parts":[{"text":"x"}]`):                                        "control characters",
		message(`"messageId":"` + strings.Repeat("x", 257) + `","role":"ROLE_USER","parts":[{"text":"x"}]`):                "at most 256 bytes",
		message(`"messageId":"1","role":"ROLE_AGENT","parts":[{"text":"x"}]`):                                              "message.role must be ROLE_USER",
		message(`"messageId":"1","role":"user","parts":[{"kind":"text","text":"x"}]`):                                      "message.role must be ROLE_USER",
		message(`"messageId":"1","role":"ROLE_USER","parts":[]`):                                                           "message.parts must have at least one part",
		message(`"messageId":"1","role":"ROLE_USER","parts":{}`):                                                           "message.parts must be a list",
		message(`"messageId":"1","role":"ROLE_USER","parts":[7]`):                                                          "message.parts[0] must be an object",
		message(`"messageId":"1","role":"ROLE_USER","parts":[{"text":"x"},{}]`):                                            "message.parts[1] must have one of",
		message(`"messageId":"1","role":"ROLE_USER","parts":[{"video":"x"}]`):                                              "message.parts[0] must have one of",
		message(`"messageId":"1","role":"ROLE_USER","parts":[{"text":"x","url":"https://x"}]`):                             "message.parts[0] must have one of",
		message(`"messageId":"1","role":"ROLE_USER","parts":[{"raw":"not base64!"}]`):                                      "must be Base64",
		message(`"messageId":"1","role":"ROLE_USER","parts":[{"url":"no url"}]`):                                           "must be an absolute URL",
		message(`"messageId":"1","role":"ROLE_USER","parts":[{"text":"x","metadata":[]}]`):                                 "metadata must be an object",
		message(`"messageId":"1","role":"ROLE_USER","parts":[` + strings.Repeat(`{"text":""},`, 1000) + `{"text":""}]`):    "at most 1000",
		message(`"messageId":"1","role":"ROLE_USER","parts":[{"text":"x"}],"contextId":"a b"`):                             "is not taken by the relay",
		message(`"messageId":"1","role":"ROLE_USER","parts":[{"text":"x"}],"contextId":"conv_0t3z1hj9e001xzqx8pz68qj0y4"`): "contextId is not known",
		message(`"messageId":"1","role":"ROLE_USER","parts":[{"text":"` + strings.Repeat("x", 1<<20) + `"}]`):              "larger than the relay takes",
		strings.TrimSuffix(a2aSays("1", "x", ""), "}") + `,"configuration":{"historyLength":-1}}`:                          "configuration.historyLength",
		`{"message":[]}`: "message must be an object",
	} {
		d.call("planner^a2a", "SendMessage", params).fails(-32602, says)
	}
	d.call("planner^a2a", "SendMessage", atOnce(a2aSays("1", "x", `,"taskId":"msg_0t3z1hj9e001xzqx8pz68qj0y4"`))).fails(-32001, "no such task")
	d.call("planner^a2a", "SendMessage", strings.TrimSuffix(a2aSays("1", "x", ""), "}")+`,"configuration":{"taskPushNotificationConfig":{"url":"http://x"}}}`).fails(-32003, "push")

	for v, body := range map[string]string{"": strings.Replace(good, "SendMessage", "message/send", 1), "0.3": good, "1.1": good, "2.0": good, "1.0.1": good, strings.Repeat("1", 99): good} {
		d.version = v
		if got, err := d.raw("planner^a2a", body, nil); err != nil {
			t.Error(err)
		} else {
			got.fails(-32009, "version 1.0 of A2A")
		}
	}
	d.version = "" // the name of the method tells the version as well
	if got, err := d.raw("planner^a2a", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"msg_0t3z1hj9e001xzqx8pz68qj0y4"}}`, nil); err != nil {
		t.Error(err)
	} else {
		got.fails(-32001, "no such task")
	}
	d.version = "1.0"
	for _, c := range []struct {
		header http.Header
		body   string
		status int
	}{
		{http.Header{"Content-Type": {"text/plain"}}, good, 415}, {http.Header{"Content-Type": {}}, good, 415},
		{http.Header{"Host": {"evil.example"}}, good, 421}, {http.Header{"Host": {"127.0.0.1.evil.example:80"}}, good, 421},
		{http.Header{"Origin": {"https://evil.example"}}, good, 403}, {http.Header{"Origin": {"null"}}, good, 403},
		{nil, good + strings.Repeat(" ", 2<<20), 413},
	} {
		if got, err := d.raw("planner^a2a", c.body, c.header); err != nil || got.status != c.status || got.Error == nil {
			t.Errorf("%v: %d %v", c.header, got.status, err)
		}
	}
	for path, status := range map[string]int{"/": 404, "/a2a/": 404, "/a2a/planner": 404, "/a2a/*^a2a": 404, "/a2a/planner^a2a/more": 404, "/a2a/planner^a2a": 405} {
		d.card(path, nil).want(t, status)
	}
	if got := s.history(keys[1], ""); len(got) != 0 {
		t.Errorf("something was stored: %+v", got)
	}
	if got := d.call("planner^a2a", "SendMessage", atOnce(a2aSays("1", "x", ""))).sent(); got.ID == "" { // it still serves
		t.Errorf("%+v", got)
	}
}

// Wrong flags end relay a2a at once, and a gateway to a network needs a token.
func TestA2AUsage(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	key := issue(t, db, "gateway^usage")[0]
	s := startServer(t, db)
	env := []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + key.Key}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, says := range map[string]string{
		"--listen 0.0.0.0:0": "name a file with a token", "--listen nowhere": "--listen must be host:port", "--offer planner": "--offer must be addresses",
		"--wait -1s": "--wait must not be negative", "--as gateway": "--as must be the address", "--public-url agents.example.com": "--public-url must be a URL",
	} {
		runRefused(t, append([]string{"a2a", "--as", "gateway^usage", "--listen", "127.0.0.1:0"}, strings.Fields(args)...), env).wantCode(t, 2, says)
	}
	for args, says := range map[string]string{"--token-file " + short: "16 characters", "--token-file " + short + "x": "cannot read", "--as planner^usage": "the key belongs to gateway^usage"} {
		runRefused(t, append([]string{"a2a", "--as", "gateway^usage", "--listen", "127.0.0.1:0"}, strings.Fields(args)...), env).wantCode(t, 1, says)
	}
	run(t, []string{"a2a", "--as", "gateway^usage"}, []string{"RELAY_URL=" + s.url}, "").wantCode(t, 2, "no key")
	run(t, []string{"a2a"}, env, "").wantCode(t, 2, "--as must be the address")
}

// The door's error says that the relay is away. The gateway rejects messages that answer none of
// its own. It ends when its key is revoked.
func TestA2AWithoutItsRelay(t *testing.T) {
	t.Parallel()
	s, d, keys := newDoorWith(t, startProcess, "--retry", "100ms", "--offer", "planner^a2a")
	stray := s.send(keys[1], "gateway^a2a", `{}`).MessageID
	eventually(t, patience, "a message that is no answer is rejected", func() bool {
		r := parse[record](t, s.ask(keys[1], "GET", "/api/v1/messages/"+stray, "").want(t, 200))
		return r.Ack != nil && r.Ack.Status == "rejected"
	})
	s.kill()
	for method, params := range map[string]string{"SendMessage": a2aSays("1", "x", ""), "GetTask": `{"id":"` + stray + `"}`, "ListTasks": "{}", "SendStreamingMessage": a2aSays("1", "x", "")} {
		d.call("planner^a2a", method, params).fails(-32603, "the relay behind this gateway d")
	}
	d.card("/a2a/planner^a2a"+a2aCard, nil).want(t, 502)
	s = startServerAt(t, s)
	var got rpc
	eventually(t, patience, "the door serves again", func() bool {
		got = d.call("planner^a2a", "SendMessage", atOnce(a2aSays("1", "x", "")))
		return got.Error == nil
	})
	first := got.sent()
	eventually(t, patience, "the door repeats its answer", func() bool { // the machine may be too slow for the 2.1 s of a request of the door's
		got = d.call("planner^a2a", "SendMessage", atOnce(a2aSays("1", "x", "")))
		return got.Error == nil
	})
	if again := got.sent(); again.ID != first.ID || len(s.history(keys[1], "direction=in")) != 1 {
		t.Errorf("%+v", again)
	}
	mustRelay(t, "key", "revoke", keys[0].KeyID, "--db", s.db)
	if code := d.wait(); code != 1 {
		t.Errorf("exit %d: %s", code, d.stderr)
	}
}
