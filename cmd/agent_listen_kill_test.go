package cmd_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Three listeners take many messages each, with -long 2,000: one runs a command for each, one
// prints and acks, one only prints and keeps its place in a file. They and the
// relay are killed again and again, and started again. Each must handle every
// message at least once, in order, and none may be missed.
func TestListenersAndRelayKilledMissNothing(t *testing.T) {
	notOnWindows(t, "there is no kill -9")
	tool(t, "sh")
	t.Parallel()
	n, kills := rounds(t, 60, 2300), rounds(t, 2, 12)
	k := newKilling(t, n)
	var sending sync.WaitGroup
	for _, w := range k.workers {
		sending.Go(w.send)
	}
	for i := range kills {
		k.awaitHandled(i+1, kills+1)
		switch i % 3 {
		case 0, 2:
			for _, w := range k.workers {
				w.restart()
			}
		case 1:
			k.relay.kill()
			k.start()
		}
	}
	k.awaitHandled(1, 1)
	sending.Wait()
	for _, w := range k.workers {
		w.run.interrupt()
		k.compare(w)
	}
}

type killing struct {
	t       *testing.T
	db      string
	alice   agent
	relay   *server
	front   *front
	workers []*worker
}

// worker is a recipient with its listener, and all the listeners it had before.
type worker struct {
	*killing
	agent
	n       int // messages
	args    []string
	log     string // what the command writes; "": what the listener prints counts
	runs    []*server
	run     *server
	handled atomic.Int64
}

func newKilling(t *testing.T, n int) *killing {
	k := &killing{t: t, db: tempDB(t)}
	keys := issue(t, k.db, "alice^kill", "exec^kill", "ack^kill", "place^kill")
	k.alice = keys[0]
	k.relay = startProcess(t, k.db, "--rate-limit", "0")
	k.front = newFront(t, k.relay)
	log := filepath.Join(t.TempDir(), "log")
	for i, args := range [][]string{
		{"--exec", `read -r payload; echo "$RELAY_MESSAGE_ID $payload" >> '` + log + `'`},
		{"--ack", "completed"},
		{"--state", filepath.Join(t.TempDir(), "state")},
	} {
		w := &worker{killing: k, agent: keys[i+1], n: n, args: args}
		if i == 0 {
			w.log = log
		}
		w.start()
		k.workers = append(k.workers, w)
	}
	return k
}

func (k *killing) start() {
	k.relay = startProcess(k.t, k.db, "--rate-limit", "0")
	k.front.leadTo(k.relay)
}

func (w *worker) start() {
	c := exec.Command(binary, append([]string{"listen"}, w.args...)...)
	w.run = launch(w.t, c, []string{"RELAY_URL=" + w.front.url, "RELAY_KEY=" + w.Key})
	w.runs = append(w.runs, w.run)
}

func (w *worker) restart() {
	w.run.kill()
	w.start()
}

// send sends all messages of one worker, not far ahead of what it does, so that
// the kills come in the middle of it.
func (w *worker) send() {
	for i, end := 0, time.Now().Add(3*patience); i < w.n; {
		if time.Now().After(end) {
			w.t.Errorf("%s: only %d messages were sent", w.Address, i)
			return
		}
		if int64(i) > w.handled.Load()+100 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		body := fmt.Sprintf(`{"to":%q,"payload":{"n":%d}}`, w.Address, i)
		ans, err := w.alice.request("POST", "/api/v1/messages", body, "Idempotency-Key", fmt.Sprintf("%s %d", w.Address, i)).to(w.front.url)
		switch {
		case err == nil && ans.status == http.StatusCreated:
			i++
		case err == nil && ans.status != http.StatusServiceUnavailable:
			w.t.Errorf("%s: status %d: %s", w.Address, ans.status, ans.body)
			return
		default:
			time.Sleep(5 * time.Millisecond) // the relay is away
		}
	}
}

// lines returns the message ids that were handled, in the order of handling, by run.
func (w *worker) lines() (runs [][]string) {
	texts := []string{}
	if w.log != "" {
		text, err := os.ReadFile(w.log)
		if err != nil && !os.IsNotExist(err) {
			w.t.Error(err)
		}
		texts = append(texts, string(text))
	} else {
		for _, r := range w.runs {
			texts = append(texts, r.stdout.String())
		}
	}
	for _, text := range texts {
		var ids []string
		for line := range strings.Lines(text) {
			if i := strings.Index(line, "msg_"); i >= 0 && strings.HasSuffix(line, "\n") {
				ids = append(ids, line[i:i+30])
			}
		}
		runs = append(runs, ids)
	}
	return runs
}

// count returns how many different messages were handled.
func (w *worker) count() int {
	seen := map[string]bool{}
	for _, run := range w.lines() {
		for _, id := range run {
			seen[id] = true
		}
	}
	w.handled.Store(int64(len(seen))) // for send
	return len(seen)
}

// awaitHandled waits until each worker has handled a part of its messages.
func (k *killing) awaitHandled(part, of int) {
	k.t.Helper()
	eventually(k.t, 3*patience, fmt.Sprintf("each has handled %d/%d", part, of), func() bool {
		all := true
		for _, w := range k.workers {
			all = w.count() >= w.n*part/of && all // each is counted, for send
		}
		return all
	})
}

// compare compares the handled messages with the history.
func (k *killing) compare(w *worker) {
	k.t.Helper()
	h := k.relay.history(w.agent, "direction=in")
	if len(h) != w.n {
		k.t.Errorf("%s has %d messages, want %d", w.Address, len(h), w.n)
	}
	place := map[string]int{} // in the history
	for i, m := range h {
		place[m.MessageID] = i
		if acked := m.State == "acknowledged"; acked != (w.args[0] != "--state") {
			k.t.Errorf("%s: number %d is %s", w.Address, i, m.State)
		}
	}
	// A run may repeat messages from where the last one was killed. It may not skip any.
	next, times := 0, 0
	for _, run := range w.lines() {
		for i, id := range run {
			at, known := place[id]
			times++
			if !known || at > next {
				k.t.Fatalf("%s: after number %d comes %d (%s)", w.Address, next-1, at, id)
			}
			if w.log == "" && i > 0 && id <= run[i-1] {
				k.t.Errorf("%s: one listener printed %s after %s", w.Address, id, run[i-1])
			}
			next = max(next, at+1)
		}
	}
	if next != w.n {
		k.t.Errorf("%s has handled %d of %d", w.Address, next, w.n)
	}
	k.t.Logf("%s: %d listeners, %d messages, %d handled again", w.Address, len(w.runs), next, times-next)
}
