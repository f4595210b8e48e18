package cmd_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// A machine that sleeps, a debugger, a container that is frozen: the server
// stands still for longer than its clients wait. They ask again, with the same
// Idempotency-Key or with the very same request; when it continues, it finds all
// of these requests at once.
func TestCrashPausedForLongerThanClientsWait(t *testing.T) {
	notOnWindows(t, "there is no SIGSTOP")
	t.Parallel()
	db, l := tempDB(t), newLedger()
	keys := issue(t, db, "a^pause", "b^pause", "c^pause", "d^pause", "listener^pause")
	listener := keys[4]
	s := startProcess(t, db, "--rate-limit", "0")
	r := &recipient{crash: &crash{t: t, server: s}, agent: listener}
	r.heard = []string{s.send(listener, "a^pause", `{}`).MessageID} // a place to start from
	total := 0
	hear := make(chan struct{})
	n := rounds(t, 1, 20)
	const each = 25
	go func() {
		defer close(hear)
		r.listen(func() bool { return len(r.heard) > n*4*each })
	}()
	for round := range n {
		var wg sync.WaitGroup
		half := make(chan struct{}, 4)
		for _, a := range keys[:4] {
			wg.Go(func() {
				for i := range each {
					if i == each/2 {
						half <- struct{}{}
					}
					l.insist(s, a, listener.Address, fmt.Sprintf("%s/%d/%d", a.Address, round, i), i%2 == 0)
				}
			})
		}
		for range 4 {
			<-half
		}
		pause(s)
		runRelay(t, "serve", "--addr", "127.0.0.1:0", "--db", db).wantCode(t, 1, "already being served") // it still has the file
		time.Sleep(3 * hurry)                                                                            // what is tested is that time passes
		resume(s)
		wg.Wait()
		total += 4 * each
	}
	<-hear
	h := s.history(listener, "direction=in")
	if len(h) != total || len(r.heard) != total+1 {
		t.Fatalf("%d messages were insisted on: history has %d, the socket heard %d", total, len(h), len(r.heard)-1)
	}
	for i, m := range h {
		if r.heard[i+1] != m.MessageID {
			t.Fatalf("the socket heard %s where history has %s", r.heard[i+1], m.MessageID)
		}
	}
	l.compare(s, listener)
	t.Logf("%d pauses, %d messages, %d requests without an answer in time: none lost, doubled or out of order", n, total, l.codes["timeout"])
}

const hurry = time.Second // how long its clients wait

// insist sends until there is an answer. Without an Idempotency-Key it repeats
// the very same request: if that was done before, its nonce has been used.
func (l *ledger) insist(s *server, from agent, to, token string, keyed bool) {
	body := fmt.Sprintf(`{"to":%q,"payload":{"token":%q}}`, to, token)
	req := from.request("POST", "/api/v1/messages", body)
	impatient := &http.Client{Timeout: hurry, Transport: client.Transport}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if keyed {
			req = from.request("POST", "/api/v1/messages", body, "Idempotency-Key", token)
		}
		ans, err := req.by(impatient, s.url)
		l.mu.Lock()
		switch {
		case err != nil:
			l.codes["timeout"]++
		case ans.status == 201:
			l.accepted[parse[record](s.t, ans.body).MessageID] = token
		case !keyed && ans.code() == "nonce_reused":
			l.open[token] = true // it is there, by a name that its sender does not know
		default:
			s.t.Errorf("%s: %d %s", token, ans.status, ans.body)
		}
		l.mu.Unlock()
		if err == nil {
			return
		}
	}
	s.t.Errorf("%s: no answer", token)
}
