package cmd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	rc "relay/http/client"
)

// The requests that the specification shows are understood, and the answers have the form
// that it demands. The Mecha knows nothing of A2A.
func TestA2ACarriesTasks(t *testing.T) {
	t.Parallel()
	s, d, keys := newDoor(t)
	examples := parse[map[string]json.RawMessage](t, []byte(mustRead(t, "testdata/a2a/requests.json")))
	last := a2aTask{}
	ask := func(name string) rpc {
		t.Helper()
		text := strings.NewReplacer("TASK\"", last.ID+"\"", "CONTEXT", last.ContextID).Replace(string(examples[name]))
		e := parse[struct {
			Method string
			Params json.RawMessage
		}](t, []byte(text))
		kind := map[string]string{"SendMessage": "SendMessageRequest", "SendStreamingMessage": "SendMessageRequest"}[e.Method]
		if kind == "" {
			kind = e.Method + "Request"
		}
		wantA2A(t, kind, e.Params) // the examples are what they are said to be
		return d.call("planner^a2a", e.Method, string(e.Params))
	}

	// The Mecha is away: the task is stored, and says why there is no answer.
	first := d.call("planner%5Ea2a/", "SendMessage", atOnce(a2aSays("early", "anybody?", ""))).sent()
	if first.Status.State != "TASK_STATE_SUBMITTED" || first.Status.Message == nil || !strings.Contains(string(first.Status.Message.Parts[0]), "planner^a2a has never made a request") {
		t.Errorf("%+v", first)
	}
	answering(t, s, keys[1], echo)
	// Said again, with the same messageId, it is the same task; now there is an answer.
	again := d.call("planner^a2a", "SendMessage", a2aSays("early", "anybody?", "")).sent()
	if again.ID != first.ID || again.ContextID != first.ContextID || again.says() != `COMPLETED [{"data":{"you_said":{"text":"anybody?"}},"mediaType":"application/json"}]` {
		t.Errorf("%+v", again)
	}
	if got := d.call("planner^a2a", "SendMessage", a2aSays("early", "something else", "")); got.Error == nil {
		t.Errorf("%s", got.Result)
	} else {
		got.fails(-32602, "was the id of another message")
	}

	last = ask("basic (6.1)").sent()
	if last.says() != `COMPLETED [{"data":{"you_said":{"text":"How tall is the tower?"}},"mediaType":"application/json"}]` || last.ID == first.ID {
		t.Errorf("%+v", last)
	}
	if got := ask("get (9.4.3)").task(); got.says() != last.says() || got.ID != last.ID {
		t.Errorf("%+v", got)
	}
	if next := ask("context (3.4.1)").sent(); next.ContextID != last.ContextID || next.ID == last.ID {
		t.Errorf("%+v", next)
	}
	if got := ask("file (6.7)").sent(); got.says() != `COMPLETED [{"data":{"you_said":{"text":"What is on it?","parts":[{"text":"What is on it?"},{"raw":"iVBORw0KGgo=","filename":"input.png","mediaType":"image/png"}]}},"mediaType":"application/json"}]` {
		t.Errorf("%+v", got.says())
	}
	if got := ask("data (6.8)").sent(); got.Status.State != "TASK_STATE_COMPLETED" {
		t.Errorf("%+v", got)
	}
	type list struct {
		Tasks               []a2aTask
		PageSize, TotalSize int
		NextPageToken       string
	}
	if got := parse[list](t, ask("list by context (6.5)").ok("ListTasksResponse")); len(got.Tasks) != 2 || got.TotalSize != 2 || got.PageSize != 10 || got.Tasks[1].ID != last.ID || got.Tasks[0].Artifacts != nil {
		t.Errorf("%+v", got)
	}
	if got := parse[list](t, ask("list by status (6.5)").ok("ListTasksResponse")); len(got.Tasks) != 5 || got.Tasks[4].says() != again.says() {
		t.Errorf("%+v", got)
	}
	pages := 0
	for token, seen := "", map[string]bool{}; ; pages++ {
		page := parse[list](t, d.call("planner^a2a", "ListTasks", fmt.Sprintf(`{"pageSize":2,"pageToken":%q}`, token)).ok("ListTasksResponse"))
		for _, one := range page.Tasks {
			if seen[one.ID] {
				t.Errorf("%s comes twice", one.ID)
			}
			seen[one.ID] = true
		}
		if token = page.NextPageToken; token == "" {
			if len(seen) != 5 || pages != 2 {
				t.Errorf("%d tasks on %d pages", len(seen), pages+1)
			}
			break
		}
	}
	s.history(keys[1], "") // the relay still answers
	eventually(t, patience, "the door's mailbox is empty", func() bool {
		return parse[struct{ Pending int }](t, s.ask(keys[0], "GET", "/api/v1/mecha/gateway^a2a/inbox", "").want(t, 200)).Pending == 0
	})
}

func mustRead(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A Mecha asks for more, the client answers, and the task continues; another one is canceled.
func TestA2ATasksGoOnAndAreCanceled(t *testing.T) {
	t.Parallel()
	s, d, keys := newDoor(t)
	canceled := make(chan string, 1)
	answering(t, s, keys[1], func(ctx context.Context, m *rc.Message) error {
		var p struct{ Text, Cancel string }
		if err := m.Decode(&p); err != nil {
			return err
		}
		switch {
		case m.Type == "cancel":
			canceled <- p.Cancel + " " + m.InReplyTo
			return nil
		case p.Text == "Book a flight":
			return m.Reply(ctx, map[string]string{"text": "From where?"}, rc.SendOptions{Type: "input_required"})
		case p.Text == "wait":
			return m.Ack(ctx, "processing", "") // and it completes the message after that
		}
		return m.Reply(ctx, map[string]string{"text": "booked: " + p.Text})
	})
	first := d.call("planner^a2a", "SendMessage", a2aSays("1", "Book a flight", "")).sent()
	if first.Status.State != "TASK_STATE_INPUT_REQUIRED" || string(first.Status.Message.Parts[0]) != `{"text":"From where?"}` || len(first.Artifacts) != 0 {
		t.Fatalf("%+v", first)
	}
	d.call("planner^a2a", "SendMessage", a2aSays("2", "ZRH", `,"taskId":"`+first.ID+`","contextId":"conv_other"`)).fails(-32602, "not that of the task")
	more := a2aSays("2", "ZRH", `,"taskId":"`+first.ID+`"`)
	var twice sync.WaitGroup
	for range 2 { // at the same time
		twice.Go(func() {
			if got := d.call("planner^a2a", "SendMessage", more).sent(); got.ID != first.ID || got.says() != `COMPLETED [{"text":"booked: ZRH"}]` || len(got.History) != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
	twice.Wait()
	if got := d.call("planner^a2a", "SendMessage", more).sent(); got.says() != `COMPLETED [{"text":"booked: ZRH"}]` { // and when the task has ended
		t.Errorf("%+v", got)
	}
	if got := s.history(keys[1], "direction=in"); len(got) != 2 || got[1].InReplyTo != first.Status.Message.MessageID {
		t.Errorf("the Mecha has %d messages: %+v", len(got), got)
	}
	d.call("planner^a2a", "SendMessage", a2aSays("2", "GVA", `,"taskId":"`+first.ID+`"`)).fails(-32602, "was the id of another message")
	d.call("planner^a2a", "SendMessage", a2aSays("3", "GVA", `,"taskId":"`+first.ID+`"`)).fails(-32004, "the task has ended")
	d.call("planner^a2a", "CancelTask", `{"id":"`+first.ID+`"}`).fails(-32002, "COMPLETED")

	away := d.call("hidden^a2a", "SendMessage", atOnce(a2aSays("4", "hello", ""))).sent()
	for range 2 { // to cancel again is the same
		if got := d.call("hidden^a2a", "CancelTask", `{"id":"`+away.ID+`"}`).task(); got.ID != away.ID || got.Status.State != "TASK_STATE_CANCELED" {
			t.Errorf("%+v", got)
		}
	}
	in := s.history(keys[2], "direction=in")
	if len(in) != 2 || in[1].MessageType != "cancel" || in[1].InReplyTo != away.ID {
		t.Errorf("%+v", in)
	}
	d.call("planner^a2a", "GetTask", `{"id":"`+away.ID+`"}`).fails(-32001, "no such task") // it is another Mecha's
	d.call("hidden^a2a", "GetTask", `{"id":"`+in[1].MessageID+`"}`).fails(-32001, "no such task")
}

// A stream shows the task, the artifact and the end, in this order, and has ended then.
func TestA2AStreams(t *testing.T) {
	t.Parallel()
	s, d, keys := newDoor(t)
	resp, err := d.post("planner^a2a", `{"jsonrpc":"2.0","id":7,"method":"SendStreamingMessage","params":`+a2aSays("1", "hello", "")+`}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v", resp.Header)
	}
	events := bufio.NewScanner(resp.Body)
	next := func(events *bufio.Scanner) (kind string, task a2aTask) {
		t.Helper()
		for events.Scan() {
			data, isEvent := strings.CutPrefix(events.Text(), "data: ")
			if !isEvent {
				continue
			}
			a := parse[rpc](t, []byte(data))
			a.t = t
			if string(a.ID) != "7" {
				t.Errorf("%s", data)
			}
			for kind, body := range parse[map[string]json.RawMessage](t, a.ok("StreamResponse")) {
				return kind, parse[a2aTask](t, body)
			}
		}
		return "", a2aTask{}
	}
	kind, task := next(events)
	if kind != "task" || task.Status.State != "TASK_STATE_SUBMITTED" {
		t.Fatalf("%s %+v", kind, task)
	}
	// Another one follows it from here on.
	sub, err := d.post("planner^a2a", `{"jsonrpc":"2.0","id":7,"method":"SubscribeToTask","params":{"id":"`+task.ID+`"}}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Body.Close()
	others := bufio.NewScanner(sub.Body)
	if kind, now := next(others); kind != "task" || now.ID != task.ID {
		t.Errorf("%s %+v", kind, now)
	}
	answering(t, s, keys[1], echo)
	for _, stream := range []*bufio.Scanner{events, others} {
		var kinds []string
		for {
			kind, now := next(stream)
			if kind == "" {
				break
			}
			kinds = append(kinds, strings.TrimSuffix(kind+" "+now.Status.State, " "))
		}
		got := strings.ReplaceAll(strings.Join(kinds, ", "), "statusUpdate TASK_STATE_WORKING, ", "") // which may be missed
		if got != "artifactUpdate, statusUpdate TASK_STATE_COMPLETED" {
			t.Errorf("%v", kinds)
		}
	}
	d.call("planner^a2a", "SubscribeToTask", `{"id":"`+task.ID+`"}`).fails(-32004, "has ended")
	d.call("planner^a2a", "SubscribeToTask", `{"id":"msg_0t3z1hj9e001xzqx8pz68qj0y4"}`).fails(-32001, "no such task")
}

// Blocking or not, a client that waits too long gets the task as it is; messages expire.
func TestA2AWaitsAndExpires(t *testing.T) {
	t.Parallel()
	_, d, _ := newDoor(t, "--wait", "50ms", "--ttl", "1s")
	begun := time.Now()
	task := d.call("planner^a2a", "SendMessage", a2aSays("1", "hello", "")).sent()
	took := time.Since(begun)
	expired := task.Status.State == "TASK_STATE_FAILED" && took >= time.Second // the machine was too slow to look before
	if task.Status.State != "TASK_STATE_SUBMITTED" && !expired || took > patience {
		t.Errorf("%+v after %v", task, took)
	}
	eventually(t, patience, "the message expires", func() bool {
		task = d.call("planner^a2a", "GetTask", `{"id":"`+task.ID+`"}`).task()
		return task.Status.State == "TASK_STATE_FAILED"
	})
	if !strings.Contains(string(task.Status.Message.Parts[0]), "expired") {
		t.Errorf("%+v", task)
	}
}

// A client that repeats a message gets the same task, even at another door of the same Mecha with
// another --ttl, and if it names the context that it was told.
func TestA2ARecognisesRepeats(t *testing.T) {
	t.Parallel()
	s, d, keys := newDoor(t)
	other := startDoor(t, s, keys[0], "--ttl", "1h")
	first := d.call("planner^a2a", "SendMessage", atOnce(a2aSays("1", "hello", ""))).sent()
	own := d.call("planner^a2a", "SendMessage", atOnce(a2aSays("2", "hello", `,"contextId":"trip-17"`))).sent()
	for name, at := range map[string]*door{"the same door": d, "another --ttl": other} {
		for params, want := range map[string]a2aTask{
			a2aSays("1", "hello", ""):                                   first,
			a2aSays("1", "hello", `,"contextId":"`+first.ContextID+`"`): first,
			a2aSays("2", "hello", `,"contextId":"trip-17"`):             own,
			a2aSays("2", "hello", ""):                                   own,
		} {
			if got := at.call("planner^a2a", "SendMessage", atOnce(params)).sent(); got.ID != want.ID || got.ContextID != want.ContextID {
				t.Errorf("%s: %s is %+v, want %+v", name, params, got, want)
			}
		}
		for _, params := range []string{a2aSays("1", "something else", ""), a2aSays("1", "hello", `,"contextId":"trip-17"`), a2aSays("1", "hello", `,"contextId":"unused"`)} {
			at.call("planner^a2a", "SendMessage", params).fails(-32602, "was the id of another message")
		}
	}
	if got := s.history(keys[1], "direction=in"); len(got) != 2 {
		t.Errorf("the Mecha has %d messages: %+v", len(got), got)
	}
}
