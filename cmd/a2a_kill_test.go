package cmd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// persist asks until the door gives a result: what it answers while it or the relay is
// killed tells a client to try again.
func (d *door) persist(t *testing.T, method, params string) json.RawMessage {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	end := time.Now().Add(patience)
	for time.Now().Before(end) {
		got, err := d.raw("planner^a2a", body, nil)
		switch {
		case err == nil && got.Error == nil && got.Result != nil:
			return got.Result
		case err == nil && (got.Error == nil || got.Error.Code != -32603) && got.status != http.StatusServiceUnavailable:
			t.Errorf("%s: %d %+v", method, got.status, got.Error)
			return nil
		}
		time.Sleep(20 * time.Millisecond) // a client's pause between attempts
	}
	t.Errorf("%s: no result within %v", method, patience)
	return nil
}

// restartDoor starts a door that was killed again, at its address.
func restartDoor(t testing.TB, d *door, s *server, as agent) *server {
	t.Helper()
	again := launch(t, exec.Command(binary, "a2a", "--as", as.Address, "--listen", strings.TrimPrefix(d.url, "http://")), []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + as.Key})
	again.await(again.stdout, "A2A as ")
	return again
}

// Eight clients give tasks while the relay and the door are killed again and again. Each
// question is stored once and answered once, and each task ends once: what a client has
// read of its end stays so.
func TestA2ASurvivesKills(t *testing.T) {
	t.Parallel()
	const clients = 8
	kills, tasks := rounds(t, 3, 18), rounds(t, 8, 576)
	s, d, keys := newDoorWith(t, startProcess)
	answering(t, s, keys[1], echo)

	stored := make(chan bool, tasks)
	type end struct {
		n    int
		task a2aTask
	}
	ends := make(chan end, tasks)
	client := func(n int) {
		params := a2aSays(fmt.Sprint("kill-", n), fmt.Sprint("question ", n), "")
		if n%2 == 0 {
			params = atOnce(params)
		}
		sent := d.persist(t, "SendMessage", params)
		stored <- true
		if sent == nil {
			return
		}
		task := parse[struct{ Task a2aTask }](t, sent).Task
		for until := time.Now().Add(patience); task.Status.State != "TASK_STATE_COMPLETED"; time.Sleep(20 * time.Millisecond) { // a client that polls
			state := strings.TrimPrefix(task.Status.State, "TASK_STATE_")
			if time.Now().After(until) || state != "SUBMITTED" && state != "WORKING" {
				t.Errorf("task %d is %+v", n, task)
				return
			}
			got := d.persist(t, "GetTask", `{"id":"`+task.ID+`"}`)
			if got == nil {
				return
			}
			task = parse[a2aTask](t, got)
		}
		ends <- end{n, task}
	}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for n := c; n < tasks; n += clients {
				client(n)
			}
		})
	}
	process := d.server
	for i := range kills {
		for range max(1, tasks/(kills+1)) {
			<-stored
		}
		if i%3 != 0 {
			process.kill()
		}
		if i%3 != 1 {
			s.kill()
			s = startServerAt(t, s)
		}
		if i%3 != 0 {
			process = restartDoor(t, d, s, keys[0])
		}
	}
	wg.Wait()
	close(ends)

	ids := map[string]bool{}
	for e := range ends {
		want := fmt.Sprintf(`COMPLETED [{"data":{"you_said":{"text":"question %d"}},"mediaType":"application/json"}]`, e.n)
		now := parse[a2aTask](t, d.persist(t, "GetTask", `{"id":"`+e.task.ID+`"}`))
		if e.task.says() != want || now.says() != want || now.Status.Timestamp != e.task.Status.Timestamp || ids[e.task.ID] {
			t.Errorf("task %d was %+v and is %+v", e.n, e.task, now)
		}
		ids[e.task.ID] = true
	}
	questions, answers := s.history(keys[1], "direction=in"), s.history(keys[1], "direction=out")
	if len(ids) != tasks || len(questions) != tasks || len(answers) != tasks {
		t.Errorf("%d tasks have ended of %d, with %d questions and %d answers", len(ids), tasks, len(questions), len(answers))
	}
}
