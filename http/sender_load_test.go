package http_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
	"relay/db/scratch"
)

// eventually waits for a condition that nothing announces.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	scratch.Eventually(t, patience, what, is)
}

// Large messages of sockets are counted with large bodies: where a request is refused, a
// socket is not read. Small messages pass, and so do other Mechas. The room is given back when the message is stored, or its socket is gone.
func TestLargeFramesShareTheMemoryOfBodies(t *testing.T) {
	t.Parallel()
	const share = 1 << 20
	r := mustServe(t, func(s *settings) { s.api.MaxBodyMemory = 8 * share })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	large := letter(bob, `"x":"`+strings.Repeat("x", 300_000)+`"`)
	big := letter(bob, `"x":"`+strings.Repeat("x", 900_000)+`"`)
	held, waits, small := alice.mustOpen(), alice.mustOpen(), alice.mustOpen()
	whole := frameOf("held", big)
	w, err := held.conn.Writer(context.Background(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	w.Write([]byte(whole[:10])) // in fragments: it may become as long as is allowed
	w.Write([]byte(whole[10:100_000]))
	eventually(t, "a request finds the share used", func() bool { return alice.post(messages, large).status == 429 })
	waits.write(frameOf("waits", large))
	if f := small.send(letter(bob)); f.Type != "sent" {
		t.Errorf("a small message: %+v", f)
	}
	if f := bob.mustOpen().send(large); f.Type != "sent" {
		t.Errorf("another Mecha: %+v", f)
	}
	alice.post(messages, large).wantProblem(429, relay.RateLimited)
	before := r.countMessages()
	alice.post(messages, large).wantProblem(429, relay.RateLimited)
	r.wantMessages(before) // the one that waits is not among them
	w.Write([]byte(whole[100_000:]))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*socket{held, waits} {
		if f := s.next(); f.Type != "sent" {
			t.Errorf("got %+v", f)
		}
	}
	r.wantMessages(before + 2)
	w, err = held.conn.Writer(context.Background(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	w.Write([]byte(whole[:100_000]))
	eventually(t, "a request finds the share used again", func() bool { return alice.post(messages, large).status == 429 })
	held.conn.CloseNow()
	eventually(t, "the share is free", func() bool { return alice.post(messages, big).status == 201 })
}

// One key that floods all its sockets with messages, large ones too, takes its own turns
// only: the requests of another Mecha are answered meanwhile, and so are all of the flood.
func TestAFloodOfSendsLeavesOthersTheirTurns(t *testing.T) {
	if testing.Short() { // the race detector makes a flood of minutes of it
		t.Skip("-short")
	}
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBodyMemory = 16 << 20 })
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
	stop := make(chan struct{})
	var flood sync.WaitGroup
	var flooded atomic.Int64
	for i := range scratch.Amount(t, 4, 8) {
		s, body := alice.mustOpen(), letter(bob, `"x":"`+strings.Repeat("x", []int{10, 1000, 20_000, 400_000}[i%4])+`"`)
		ahead := make(chan struct{}, 300) // more than the relay takes at once
		flood.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					s.write(frameOf("last", body))
					return
				case ahead <- struct{}{}:
					s.write(frameOf(fmt.Sprint(n), body))
				}
			}
		})
		flood.Go(func() {
			for n := 0; ; n++ {
				f, _ := s.read()
				flooded.Add(1)
				if f.Type == "sent" && f.Ref == "last" {
					return
				}
				if f.Type != "sent" || f.Ref != fmt.Sprint(n) {
					t.Errorf("got %+v, want the answer to %d", f, n)
				}
				<-ahead
			}
		})
	}
	eventually(t, "the flood has begun", func() bool { return flooded.Load() > 100 })
	began := time.Now()
	for range 10 {
		carol.mustSend(bob)
		carol.get(whoami).want(200)
	}
	t.Logf("20 requests of the bystander took %v, beside %d messages of the flood", time.Since(began), flooded.Load())
	close(stop)
	flood.Wait()
	bob.get(inboxPath(bob)).want(200).wantField("pending", fmt.Sprint(10+flooded.Load()))
}
