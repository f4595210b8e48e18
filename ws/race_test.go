package ws_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/db/scratch"
	"relay/db/scratch/wire"
	"relay/ws"
)

// store is the real one; before and after run around each reading of a page, at
// the moments that chance finds too seldom.
type store struct {
	*db.DB
	before, after func()
}

func (s *store) Stream(ctx context.Context, q relay.StreamQuery) (relay.StreamPage, error) {
	if s.before != nil {
		s.before()
	}
	p, err := s.DB.Stream(ctx, q)
	if s.after != nil {
		s.after()
	}
	return p, err
}

// A message that is committed just before a page is read is in the page and
// in the queue; one that is committed just after it, in the queue alone.
func TestMessagesCommittedAroundTheReadingOfAPage(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		for _, query := range []string{"", "sync_limit=1000", "sync_limit=2"} {
			for _, before := range []bool{true, false} {
				var r *testRelay
				var alice, bob relay.IssuedKey
				var mu sync.Mutex
				left := 10
				send := func() {
					mu.Lock()
					defer mu.Unlock()
					if left == 0 {
						return
					}
					left--
					r.mustSend(alice, "bob^test", `{}`)
					r.mustSend(bob, "alice^test", `{}`) // a later commit is through: the hub has been told of this one
				}
				r = mustServe(t, func(c *ws.Config) {
					s := &store{DB: c.Store.(*db.DB)}
					if s.before = send; !before {
						s.before, s.after = nil, send
					}
					c.Store = s
				})
				alice, bob = r.mustPair()
				r.mustSendMany(alice, "bob^test", 3)
				c := r.mustDial(bob, query+"&events=sync")
				c.expect("sync")
				var got []relay.MessageID
				for len(got) < 4 || len(got) < len(r.received(bob)) {
					f, err := c.next()
					if err != nil {
						t.Fatal(err)
					}
					if f.Type == "message" {
						got = append(got, f.MessageID)
						c.ack(f.MessageID, "received")
					}
				}
				mu.Lock()
				left = 0 // a page that is read from here on sends nothing behind the last
				mu.Unlock()
				last := r.mustSend(alice, "bob^test", `{}`)
				for f := (frame{}); f.MessageID != last; got = append(got, f.MessageID) {
					for f.Type = ""; f.Type != "message"; {
						var err error
						if f, err = c.next(); err != nil {
							t.Fatal(err)
						}
					}
				}
				expectSame(t, got, r.received(bob))
				c.CloseNow()
				r.stop()
			}
		}
	})
}

// Connections catch up while messages are being sent: whatever the moment at
// which one becomes live, it gets every message once, in commit order.
func TestCatchingUpWhileMessagesAreSent(t *testing.T) {
	t.Parallel()
	withAndWithoutTLS(t, catchingUpWhileMessagesAreSent)
}

func catchingUpWhileMessagesAreSent(t *testing.T, r *testRelay) {
	alice, _ := r.mustPair()
	const senders, backlog = 8, 90
	live := scratch.Amount(t, 80, 160)
	for round := range scratch.Amount(t, 1, 8) {
		to := r.mustIssue(relay.Address(fmt.Sprintf("to%d^test", round)))
		r.mustSendMany(alice, to.Mecha.Address, backlog)
		anchor := r.received(to)[0]
		got := make([][]relay.MessageID, 6)
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range got {
			query := "sync_limit=" + []string{"1000", "70", "10"}[i%3]
			want := backlog + live
			if i >= 3 { // half of them with a cursor
				query, want = query+"&since_message_id="+string(anchor), want-1
			}
			c := r.mustDial(to, query)
			wg.Go(func() {
				<-begin
				for range want {
					f, err := c.next()
					if err != nil {
						t.Errorf("%s: after %d: %v", query, len(got[i]), err)
						return
					}
					got[i] = append(got[i], f.MessageID)
					c.ack(f.MessageID, "received")
				}
			})
		}
		var sent atomic.Int64
		for range senders {
			wg.Go(func() {
				<-begin
				for n := sent.Add(1); n <= int64(live); n = sent.Add(1) {
					if n%40 == 0 {
						time.Sleep(time.Millisecond) // let some catch up in between
					}
					m := &relay.SendMessage{At: time.Now(), Key: alice.Number, To: to.Mecha.Address, Payload: []byte(`{}`), Nonce: 1}
					if err := m.Validate(); err != nil {
						t.Error(err)
					}
					if _, err := r.Send(m); err != nil {
						t.Error(err)
					}
				}
			})
		}
		close(begin)
		wg.Wait()
		if t.Failed() {
			return
		}
		ids := r.received(to)
		for i := range got {
			expectSame(t, got[i], ids[len(ids)-len(got[i]):])
		}
	}
}

// Connections that open in the middle of the stream miss nothing of what
// follows: neither with a cursor, nor from the oldest pending, nor live only.
func TestConnectingWhileMessagesAreSent(t *testing.T) {
	t.Parallel()
	withAndWithoutTLS(t, connectingWhileMessagesAreSent)
}

func connectingWhileMessagesAreSent(t *testing.T, r *testRelay) {
	alice, bob := r.mustPair()
	n := scratch.Amount(t, 150, 600)
	first := r.mustSend(alice, "bob^test", `{}`)
	var wg sync.WaitGroup
	wg.Go(func() { r.mustSendMany(alice, "bob^test", n) })
	var mu sync.Mutex
	var got [][]relay.MessageID
	var whole []bool
	for i := range 15 {
		query := []string{"sync_limit=0", "sync_limit=1000", "sync_limit=1000&since_message_id=" + string(first)}[i%3]
		c := r.mustDial(bob, query)
		marker := r.mustSend(alice, "bob^test", `{}`) // sent after the handshake: it must come, and all behind it
		wg.Go(func() {
			var ids []relay.MessageID
			for {
				f, err := c.next()
				if err != nil {
					t.Errorf("%s: after %d: %v", query, len(ids), err)
					return
				}
				ids = append(ids, f.MessageID)
				if f.payload(t) == `{"end":1}` {
					break
				}
			}
			if ids[0] > marker {
				t.Errorf("%s: the first is %s, want %s or earlier", query, ids[0], marker)
			}
			mu.Lock()
			defer mu.Unlock()
			got, whole = append(got, ids), append(whole, i%3 > 0)
		})
	}
	// The last message ends them all, once everything else has been sent.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		eventually(t, "all have been sent", func() bool { return len(r.received(bob)) == 1+n+15 })
		r.mustSend(alice, "bob^test", `{"end":1}`)
	}()
	wg.Wait()
	<-ended
	ids := r.received(bob)
	for i := range got {
		if whole[i] && len(got[i]) < len(ids)-1 {
			t.Errorf("got %d of %d", len(got[i]), len(ids))
		}
		expectSame(t, got[i], ids[len(ids)-len(got[i]):])
	}
}

func TestEverySocketOfAMechaGetsEverything(t *testing.T) {
	t.Parallel()
	withAndWithoutTLS(t, everySocketGetsEverything)
}

func everySocketGetsEverything(t *testing.T, r *testRelay) {
	alice, bob := r.mustPair()
	n := scratch.Amount(t, 250, 500)
	var sockets []*client
	for i := range 10 {
		sockets = append(sockets, r.mustDial(bob, fmt.Sprintf("sync_limit=%d", i%2*1000)))
	}
	for _, c := range sockets {
		c.expectNothing() // it stands
	}
	var wg sync.WaitGroup
	got := make([][]relay.MessageID, len(sockets))
	for i, c := range sockets {
		wg.Go(func() {
			for range n {
				f, err := c.next()
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = append(got[i], f.MessageID)
			}
		})
	}
	r.mustSendMany(alice, "bob^test", n)
	wg.Wait()
	for i := range got {
		expectSame(t, got[i], r.received(bob))
	}
}
