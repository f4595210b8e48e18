package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"relay/db/scratch"
	rc "relay/http/client"
)

// door is a relay a2a that runs.
type door struct {
	*server
	version, token string
}

// startDoor runs relay a2a for a relay, as an agent. The door listens on a free port, or
// where args say; in this process if the relay is there.
func startDoor(t testing.TB, s *server, as agent, args ...string) *door {
	t.Helper()
	listen := "127.0.0.1:0"
	if s.cmd != nil {
		listen = scratch.Addr(t) // nobody gets it while the door is away (restartDoor)
	}
	args = append([]string{"a2a", "--as", as.Address, "--json", "--listen", listen}, args...)
	env := []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + as.Key}
	d := &door{version: "1.0"}
	if s.cmd == nil {
		d.server = launchHere(t, args, env)
	} else {
		d.server = launch(t, exec.Command(binary, args...), env)
	}
	d.url = "http://" + d.await(d.stdout, `"address":"([^"]+)"`)[1]
	return d
}

// rpc is an answer of JSON-RPC.
type rpc struct {
	t       testing.TB
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int              `json:"code"`
		Message string           `json:"message"`
		Data    []map[string]any `json:"data"`
	} `json:"error"`
	status int
}

// post sends a body to a Mecha at the door. An error means that there is no whole answer.
func (d *door) post(to, body string, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(d.t.Context(), "POST", d.url+"/a2a/"+to, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}}
	if d.version != "" {
		r.Header.Set("A2A-Version", d.version)
	}
	if d.token != "" {
		r.Header.Set("Authorization", "Bearer "+d.token)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	return client.Do(r)
}

// raw sends a body and reads the answer.
func (d *door) raw(to, body string, header http.Header) (rpc, error) {
	resp, err := d.post(to, body, header)
	if err != nil {
		return rpc{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return rpc{}, err
	}
	a := rpc{t: d.t, status: resp.StatusCode}
	if err := json.Unmarshal(text, &a); err != nil || a.Version != "2.0" || len(a.ID) == 0 {
		return a, fmt.Errorf("%w: %d %.300s", err, resp.StatusCode, text)
	}
	return a, nil
}

// call calls a method; params is JSON.
func (d *door) call(to, method, params string) rpc {
	d.t.Helper()
	a, err := d.raw(to, fmt.Sprintf(`{"jsonrpc":"2.0","id":"c 1","method":%q,"params":%s}`, method, params), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if a.status != 200 || string(a.ID) != `"c 1"` {
		d.t.Fatalf("%d %+v", a.status, a)
	}
	return a
}

// fails expects an error of a code.
func (a rpc) fails(code int, says string) {
	a.t.Helper()
	if a.Error == nil || a.Error.Code != code || !strings.Contains(a.Error.Message, says) || a.Result != nil {
		a.t.Errorf("%s %+v, want %d %q", a.Result, a.Error, code, says)
		return
	}
	for _, detail := range a.Error.Data {
		if detail["@type"] == nil {
			a.t.Errorf("%+v has no @type", a.Error.Data)
		}
	}
}

// a2aTask is a task as a client reads it.
type a2aTask struct {
	ID, ContextID string
	Status        struct {
		State, Timestamp string
		Message          *a2aMessage
	}
	Artifacts []struct {
		ArtifactID string
		Parts      []json.RawMessage
	}
	History []a2aMessage
}

type a2aMessage struct {
	MessageID, Role string
	Parts           []json.RawMessage
}

// says is the state of a task with its artifacts, as in COMPLETED [{"text":"a"}].
func (t a2aTask) says() string {
	var all []json.RawMessage
	for _, a := range t.Artifacts {
		all = append(all, a.Parts...)
	}
	return fmt.Sprintf("%s %s", strings.TrimPrefix(t.Status.State, "TASK_STATE_"), all)
}

// ok reads a result, which must be as the schema says.
func (a rpc) ok(kind string) json.RawMessage {
	a.t.Helper()
	if a.Error != nil || a.Result == nil {
		a.t.Fatalf("%+v", a.Error)
	}
	wantA2A(a.t, kind, a.Result)
	return a.Result
}

func (a rpc) task() a2aTask {
	a.t.Helper()
	return parse[a2aTask](a.t, a.ok("Task"))
}

// sent is the task of the answer to SendMessage.
func (a rpc) sent() a2aTask {
	a.t.Helper()
	return parse[struct{ Task a2aTask }](a.t, a.ok("SendMessageResponse")).Task
}

var a2aSchemas = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	text, err := os.ReadFile("testdata/a2a/schema.json")
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	return c, c.AddResource("a2a.json", doc)
})

var a2aSchemaLock sync.Mutex // a compiler is for one goroutine

// wantA2A holds a text against the data model of the specification.
func wantA2A(t testing.TB, kind string, text []byte) {
	t.Helper()
	a2aSchemaLock.Lock()
	defer a2aSchemaLock.Unlock()
	c, err := a2aSchemas()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("a2a.json#/$defs/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = schema.Validate(v)
	}
	if err != nil {
		t.Errorf("this is no %s: %v\n%s", kind, err, text)
	}
}

// says is the parameters of SendMessage with a text. more are further fields of the message.
func a2aSays(id, text, more string) string {
	return fmt.Sprintf(`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":%q}]%s}}`, id, text, more)
}

const a2aAtOnce = `,"configuration":{"returnImmediately":true}}`

// atOnce asks not to wait for the end.
func atOnce(params string) string { return strings.TrimSuffix(params, "}") + a2aAtOnce }

// answering answers for a Mecha, in this process, as any agent of the relay does.
func answering(t testing.TB, s *server, as agent, handle func(context.Context, *rc.Message) error) {
	t.Helper()
	c, err := rc.New(rc.Config{URL: s.url, Key: as.Key})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Listen(ctx, rc.ListenOptions{MaxReplies: -1, Jobs: 4}, handle) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// echo answers with what it was sent, under "you_said".
func echo(ctx context.Context, m *rc.Message) error {
	return m.Reply(ctx, map[string]json.RawMessage{"you_said": m.Payload})
}

// newDoor starts a relay and a door before it, for the Mechas planner^a2a and hidden^a2a. A
// test may start them again at their addresses: no port 0 gives those to others meanwhile.
func newDoor(t testing.TB, args ...string) (s *server, d *door, keys []agent) {
	t.Helper()
	return newDoorWith(t, startServer, args...)
}

// newDoorWith is newDoor with a relay that start starts.
func newDoorWith(t testing.TB, start func(testing.TB, string, ...string) *server, args ...string) (s *server, d *door, keys []agent) {
	t.Helper()
	db := tempDB(t)
	keys = issue(t, db, "gateway^a2a", "planner^a2a", "hidden^a2a")
	s = start(t, db, "--addr", scratch.Addr(t))
	return s, startDoor(t, s, keys[0], append([]string{"--listen", scratch.Addr(t)}, args...)...), keys
}
