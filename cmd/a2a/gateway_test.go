package a2a

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/http"
	"relay/http/client"
	"relay/ws"
)

// patience is how long a test waits for what must happen. It does not measure speed.
const patience = 2 * time.Minute

// newRelay runs a relay on a real file and a real port, and gives the clients of the gateway and of
// the Mecha.
func newRelay(t testing.TB) (own, other *client.Client) {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(db.Options{Path: filepath.Join(t.TempDir(), "relay.db"), Schema: string(schema), Create: true, Serve: true, ClockSkew: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	hub := ws.NewHub(ws.Config{Store: d, SyncAckWait: time.Minute})
	d.OnCommit(hub.Committed)
	api := http.New(http.Config{DB: d, Live: hub, ClockSkew: time.Minute, MaxBody: 1 << 20})
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Drain()
		hub.Close(context.Background())
		server.Close()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	for a, c := range map[relay.Address]**client.Client{door: &own, mecha: &other} {
		k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: a})
		if err != nil {
			t.Fatal(err)
		}
		if *c, err = client.New(client.Config{URL: server.URL, Key: k.Text}); err != nil {
			t.Fatal(err)
		}
	}
	return own, other
}

// mustRun runs a gateway that looks at nothing on its own.
func mustRun(t testing.TB, c *client.Client) (d *Gateway, url string) {
	t.Helper()
	d = New(Config{Client: c, Own: door, Offer: []relay.Address{mecha}, Timeout: patience, Wait: 10 * patience, LookAgain: time.Hour})
	server := httptest.NewServer(d)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return d, server.URL
}

// post calls a method. The answer must be read within patience.
func post(t testing.TB, url, method, params string) *nethttp.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	r, err := nethttp.NewRequestWithContext(ctx, "POST", url+"/a2a/"+mecha, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("A2A-Version", version)
	resp, err := nethttp.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func invoke(t testing.TB, url, method, params string) string {
	t.Helper()
	text, err := io.ReadAll(post(t, url, method, params).Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func question(id, more string) string {
	return fmt.Sprintf(`{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":"?"}]%s}`, id, more)
}

// The end of a task is told when it comes, by what the relay pushes: this gateway looks again only
// after an hour.
func TestTheEndOfATaskIsPushed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		work func(context.Context, *client.Message) error
		want string
	}{
		"a receipt": {func(ctx context.Context, m *client.Message) error { return nil }, `"statusUpdate"`},
		"an answer": {func(ctx context.Context, m *client.Message) error {
			if err := m.Ack(ctx, "seen", ""); err != nil { // the task continues, until there is an answer
				return err
			}
			return m.Reply(ctx, map[string]string{"text": "42"})
		}, `"parts":[{"text":"42"}]`},
		"an answer and a receipt": {func(ctx context.Context, m *client.Message) error {
			return m.Reply(ctx, map[string]string{"text": "42"})
		}, `"parts":[{"text":"42"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, other := newRelay(t)
			_, url := mustRun(t, own)
			events := bufio.NewScanner(post(t, url, "SendStreamingMessage", question("1", "")+"}").Body)
			if !events.Scan() || !strings.Contains(events.Text(), "SUBMITTED") { // the door has looked at the task
				t.Fatal(events.Text(), events.Err())
			}
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- other.Listen(ctx, client.ListenOptions{}, c.work) }()
			var rest strings.Builder
			for events.Scan() { // until the task has ended
				rest.WriteString(events.Text())
			}
			if err := events.Err(); err != nil || !strings.Contains(rest.String(), `"TASK_STATE_COMPLETED"`) || !strings.Contains(rest.String(), c.want) {
				t.Errorf("%v %s", err, &rest)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// In a context with more messages than a gateway reads, a task is found to its end, wherever its
// messages are: near the first one, near the last one, or in between.
func TestTasksOfALongContext(t *testing.T) {
	t.Parallel()
	own, other := newRelay(t)
	d, url := mustRun(t, own)
	d.near = 3
	says := func(c *client.Client, to string, payload any, o client.SendOptions) string {
		t.Helper()
		o.ConversationID = "long"
		sent, err := c.Send(t.Context(), to, payload, o)
		if err != nil {
			t.Fatal(err)
		}
		return sent.MessageID
	}
	others := func() {
		t.Helper()
		for range 7 {
			says(own, mecha, struct{}{}, client.SendOptions{CorrelationID: "other"})
		}
	}
	var task struct {
		Result struct{ Task struct{ ID string } }
	}
	if err := json.Unmarshal([]byte(invoke(t, url, "SendMessage", question("1", `,"contextId":"long"`)+`,"configuration":{"returnImmediately":true}}`)), &task); err != nil {
		t.Fatal(err)
	}
	id := task.Result.Task.ID
	others()
	asks := says(other, door, map[string]string{"text": "where?"}, client.SendOptions{InReplyTo: id, Type: typeInput})
	get := func(want ...string) {
		t.Helper()
		got := invoke(t, url, "GetTask", fmt.Sprintf(`{"id":%q}`, id))
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("no %s in %s", w, got)
			}
		}
	}
	get("INPUT_REQUIRED", `"where?"`) // the last message
	others()
	get("INPUT_REQUIRED", `"where?"`) // in between
	more := question("2", fmt.Sprintf(`,"taskId":%q`, id)) + `,"configuration":{"returnImmediately":true}}`
	if got := invoke(t, url, "SendMessage", more); !strings.Contains(got, "SUBMITTED") {
		t.Error(got)
	}
	others()
	if got := invoke(t, url, "SendMessage", more); !strings.Contains(got, "SUBMITTED") { // again: it is found
		t.Error(got)
	}
	var second string
	for m, err := range other.Inbox(t.Context(), 99) {
		if err != nil {
			t.Fatal(err)
		}
		if m.InReplyTo == asks {
			second = m.ID
		}
	}
	says(other, door, map[string]string{"text": "42"}, client.SendOptions{InReplyTo: second})
	if _, err := other.Ack(t.Context(), second, "completed", ""); err != nil {
		t.Fatal(err)
	}
	get("COMPLETED", `"text":"42"`)
	others()
	get("COMPLETED", `"text":"42"`, `"where?"`)
	says(other, door, map[string]string{"text": "43"}, client.SendOptions{InReplyTo: second})
	get("COMPLETED", `"text":"42"`, `"text":"43"`) // the last message, which is not the first answer
}

// A relay that takes a request and does not answer costs a client not much more than the patience.
func TestARelayThatIsSilentIsAway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := client.New(client.Config{URL: "http://" + l.Addr().String(), Key: "mk_x"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(New(Config{Client: c, Own: door, Offer: []relay.Address{mecha}, Timeout: 50 * time.Millisecond}))
	defer server.Close()
	t.Run("calls", func(t *testing.T) {
		for method, params := range map[string]string{"SendMessage": question("m1", "}"), "GetTask": `{"id":"msg_0t4242ec000352q1vw2brbk6er"}`} {
			t.Run(method, func(t *testing.T) {
				t.Parallel()
				if got := invoke(t, server.URL, method, params); !strings.Contains(got, "-32603") {
					t.Error(got)
				}
			})
		}
	})
	for _, token := range []string{"x", "eHh4", "MjAyNi0wMS0wMVQwMDowMDowMFogeA"} { // the last are xxx, and a time and x
		if got := invoke(t, server.URL, "ListTasks", `{"pageToken":"`+token+`"}`); !strings.Contains(got, "-32602") {
			t.Errorf("%s: %s", token, got)
		}
	}
}

// Clients that send half a body, or wait, leave the others the cards and the calls that do not wait.
func TestAGatewayHasPlacesForOthers(t *testing.T) {
	t.Parallel()
	own, _ := newRelay(t)
	d, url := mustRun(t, own)
	for range 2 * maxLarge {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /a2a/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			mecha, maxBody, strings.Repeat(" ", smallBody))
	}
	for end := time.Now().Add(patience); len(d.large) < maxLarge; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the bodies do not take their places")
		}
	}
	if answer := post(t, url, "GetTask", strings.Repeat(" ", smallBody)+`{"id":"x"}`); answer.StatusCode != 503 {
		t.Error("a large body beside many:", answer.Status)
	}
	for range maxWaits {
		d.waits.take()
	}
	if answer := post(t, url, "SendStreamingMessage", question("1", "")+"}"); answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" {
		t.Error("a stream beside many:", answer.Status)
	}
	if text := invoke(t, url, "SendMessage", question("2", "")+"}"); !strings.Contains(text, "TASK_STATE_SUBMITTED") {
		t.Error("a message beside many that wait:", text)
	}
	for range maxCalls {
		d.calls.take()
	}
	if answer := post(t, url, "SendMessage", question("3", "")+"}"); answer.StatusCode != 503 {
		t.Error("a call beside many:", answer.Status)
	}
	if card, err := nethttp.Get(url + "/a2a/" + mecha + cardPath); err != nil || card.StatusCode != 200 {
		t.Error("the card:", card, err)
	}
}
