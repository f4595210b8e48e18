package http_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
	"relay/db/scratch/wire"
)

type claimed struct {
	MessageID  string          `json:"message_id"`
	Attempt    int             `json:"attempt"`
	LeaseUntil string          `json:"lease_until"`
	Payload    json.RawMessage `json:"payload"`
}

func claimPath(m mecha) string { return "/api/v1/mecha/" + string(m.Mecha.Address) + "/claim" }

func (m mecha) claim(body string) []claimed {
	m.r.t.Helper()
	var p struct{ Messages []claimed }
	m.post(claimPath(m), body).want(200).into(&p)
	return p.Messages
}

func ids(all []claimed) (list []string) {
	for _, m := range all {
		list = append(list, m.MessageID)
	}
	return list
}

// until waits for something that the relay does on its own.
func (r *testRelay) until(what string, done func() bool) {
	r.t.Helper()
	pause := 5 * time.Millisecond
	for end := time.Now().Add(patience); !done(); time.Sleep(pause) {
		pause += pause / 4
		if time.Now().After(end) {
			r.t.Fatal("it did not happen: " + what)
		}
	}
}

func TestEachMessageIsClaimedByOneWorker(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		other := r.mustIssue("bob^demo") // a second key of the same Mecha
		if got := bob.claim(""); len(got) != 0 {
			t.Errorf("an empty inbox gave %v", got)
		}
		var sent []string
		for range 5 {
			sent = append(sent, alice.mustSend(bob).MessageID)
		}
		first := bob.claim(`{"worker":"w1"}`)
		second := other.claim(`{"limit":3,"lease_seconds":5}`)
		if !slices.Equal(ids(first), sent[:1]) || !slices.Equal(ids(second), sent[1:4]) {
			t.Fatalf("%v and %v of %v", first, second, sent)
		}
		if m := first[0]; m.Attempt != 1 || m.LeaseUntil != "2026-11-20T08:01:00.000Z" || string(m.Payload) != "{}" {
			t.Errorf("%+v", m)
		}
		if w := alice.wish(sent[0]); w.State != "queued" {
			t.Errorf("a claim moved the state: %+v", w)
		}
		bob.mustAck(second[0].MessageID, "completed")

		r.mustCrash() // leases are on disk
		r.clock.advance(4 * time.Second)
		bob.mustAck(second[1].MessageID, "processing")   // not by the key that has the lease
		other.mustAck(second[2].MessageID, "processing") // renews
		r.clock.advance(2 * time.Second)
		var again []claimed
		r.until("the lease ends", func() bool { again = append(again, bob.claim(`{"limit":100}`)...); return len(again) == 2 })
		if !slices.Contains(ids(again), sent[2]) || !slices.Contains(ids(again), sent[4]) || again[slices.Index(ids(again), sent[2])].Attempt != 2 {
			t.Errorf("after a lease: %+v", again)
		}
		r.clock.advance(5 * time.Second) // the renewed one
		r.until("the renewed lease ends", func() bool { again = other.claim(""); return len(again) > 0 })
		if !slices.Equal(ids(again), sent[3:4]) || again[0].Attempt != 2 {
			t.Errorf("after a renewed lease: %+v", again)
		}
		if p := bob.history("direction=in"); len(p.ids()) != 5 {
			t.Errorf("history shows %v", p.ids())
		}
		alice.post(claimPath(bob), "").wantProblem(403, relay.NotYourMecha)
		for _, body := range []string{`{"limit":0}`, `{"limit":"1"}`, `{"limit":1.5}`} {
			bob.post(claimPath(bob), body).wantProblem(400, relay.InvalidLimit)
		}
		for _, body := range []string{`{"lease_seconds":4}`, `{"lease_seconds":3601}`, `{"worker":7}`, `{"worker":"` + strings.Repeat("w", 65) + `"}`, `{"worker":"\u0007"}`, `{"wait":-1}`} {
			bob.post(claimPath(bob), body).wantProblem(400, relay.InvalidRequest)
		}
		bob.post(claimPath(bob), `[]`).wantProblem(400, relay.InvalidJSON)
	})
}

// Workers that claim at the same time, in the same and in other transactions as the sends.
func TestClaimsAtTheSameTimeGiveEachMessageOnce(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	const senders, each, workers = 8, 40, 6
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for range each {
				alice.mustSend(bob)
			}
		})
	}
	var mu sync.Mutex
	got := map[string]int{}
	for w := range workers {
		all.Go(func() {
			for {
				mu.Lock()
				done := len(got) == senders*each
				mu.Unlock()
				if done {
					return
				}
				for _, m := range bob.claim(fmt.Sprintf(`{"limit":%d,"worker":"w%d"}`, 1+w, w)) {
					mu.Lock()
					got[m.MessageID]++
					mu.Unlock()
					bob.mustAck(m.MessageID, "completed")
				}
			}
		})
	}
	all.Wait()
	for id, n := range got {
		if n != 1 {
			t.Errorf("%s was claimed %d times", id, n)
		}
	}
}

func TestAClaimWaits(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		got := make(chan []claimed, 2)
		for range 2 {
			go func() { got <- bob.claim(`{"wait":60}`) }()
			<-r.watching
		}
		id := alice.mustSend(bob).MessageID
		if first := <-got; !slices.Equal(ids(first), []string{id}) {
			t.Fatalf("%+v", first)
		}
		select {
		case second := <-got:
			t.Fatalf("two workers got %+v", second)
		default:
		}
		r.clock.advance(time.Minute) // the lease ends, which wakes the other
		if second := <-got; !slices.Equal(ids(second), []string{id}) || second[0].Attempt != 2 {
			t.Fatalf("%+v", second)
		}
	})
}

func TestADeferredMessageComesAgain(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		sender := alice.mustDial("sync_limit=0&events=receipts")
		live := bob.mustDial("sync_limit=0")
		first, second := alice.mustSend(bob).MessageID, alice.mustSend(bob).MessageID
		for _, id := range []string{first, second} {
			if w := r.mustReadWish(live); w.MessageID != id || w.Attempt != 0 {
				t.Fatalf("%+v", w)
			}
		}
		bob.post(messagePath(first)+"/ack", `{"status":"deferred","client_ts":"2026-11-20T08:00:00Z","detail":"busy","retry_after_seconds":60}`).want(200)
		if w := r.mustReadWish(sender); w.Status != "deferred" || w.State != "delivered" {
			t.Errorf("the sender is told %+v", w)
		}
		if got := bob.claim(`{"limit":9}`); !slices.Equal(ids(got), []string{second}) {
			t.Errorf("claimed %+v", got)
		}
		fresh := bob.mustDial("") // it begins at the oldest pending message
		if w := r.mustReadWish(fresh); w.MessageID != second {
			t.Errorf("a new socket gets %+v", w)
		}
		r.mustCrash()
		var resumed *websocket.Conn
		live, resumed = bob.mustDial("sync_limit=0"), bob.mustDial("since_message_id="+second)
		r.clock.advance(61 * time.Second)
		for _, c := range []*websocket.Conn{live, resumed} {
			if w := r.mustReadWish(c); w.MessageID != first || w.Attempt != 2 {
				t.Errorf("it came again as %+v", w)
			}
		}
		late := bob.mustDial("since_message_id=" + second) // it was redelivered while this one was away
		if w := r.mustReadWish(late); w.MessageID != first || w.Attempt != 2 {
			t.Errorf("a socket that resumes behind it gets %+v", w)
		}
		if got := bob.claim(`{"limit":1}`); !slices.Equal(ids(got), []string{first}) || got[0].Attempt != 2 {
			t.Errorf("claimed %+v", got)
		}
		for _, body := range []string{`{"status":"processing","retry_after_seconds":5`, `{"status":"deferred","retry_after_seconds":0`, `{"status":"deferred","retry_after_seconds":604801`} {
			bob.post(messagePath(first)+"/ack", body+`,"client_ts":"2026-11-20T08:00:00Z"}`).wantProblem(400, relay.InvalidRequest)
		}
	})
}

func TestAfterItsAttemptsAMessageHasFailed(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(s *settings) { s.db.MaxAttempts = 2 })
		alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
		carol.do("PUT", "/api/v1/mecha/carol^demo/profile", `{"max_attempts":1}`).want(200)
		sender := alice.mustDial("sync_limit=0&events=receipts")
		for m, most := range map[*mecha]int{&bob: 2, &carol: 1} {
			id := alice.mustSend(*m).MessageID
			for n := range most {
				var got []claimed
				r.until("it can be claimed", func() bool { got = m.claim(""); return len(got) > 0 })
				if got[0].Attempt != n+1 {
					t.Errorf("attempt %d: %+v", n+1, got)
				}
				r.clock.advance(61 * time.Second)
			}
			if w := r.mustReadWish(sender); w.MessageID != id || w.State != "acknowledged" || w.Status != "failed" || w.Detail != "attempts spent" || w.Notice {
				t.Errorf("the sender is told %+v", w)
			}
			if ids := alice.history("state=dead&peer=" + string(m.Mecha.Address)).ids(); !slices.Equal(ids, []string{id}) {
				t.Errorf("dead are %v", ids)
			}
			if got := m.claim(""); len(got) > 0 {
				t.Errorf("claimed again: %+v", got)
			}
		}
		carol.do("PUT", "/api/v1/mecha/carol^demo/profile", `{"max_attempts":1001}`).wantProblem(400, relay.InvalidRequest)
	})
}
