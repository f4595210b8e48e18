package ws_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/db/scratch/wire"
	"relay/ws"
)

// takeAll reads n messages and acknowledges each.
func (c *client) takeAll(n int) (ids []relay.MessageID) {
	c.t.Helper()
	for range n {
		f := c.expect("message")
		ids = append(ids, f.MessageID)
		c.ack(f.MessageID, "completed")
	}
	return ids
}

func TestAClientThatAcknowledgesGetsABacklogInOneGo(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 600)
	c := r.mustDial(bob, "sync_limit=100&events=sync")
	c.expect("sync")
	got := c.takeAll(600)
	if f := c.expect("sync"); f.Phase != "end" || f.Sent != 600 {
		t.Fatalf("got %+v", f)
	}
	r.mustSendMany(alice, "bob^test", 150) // live: more than the window, and nobody acknowledges
	for range 150 {
		got = append(got, c.expect("message").MessageID)
	}
	c.expectNothing()
	expectSame(t, got, r.received(bob))
}

// However a client answers, no more than the window is in flight.
func TestTheWindowIsNeverOverrun(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, _ := r.mustPair()
	for _, limit := range []int{1, 2, 7, 64, 65} {
		bob := r.mustIssue(relay.Address("bob" + strconv.Itoa(limit) + "^test"))
		r.mustSendMany(alice, bob.Mecha.Address, scratch.Amount(t, 150, 300))
		ids := r.received(bob)
		c := r.mustDial(bob, "sync_limit="+strconv.Itoa(limit)+"&since_message_id="+string(ids[0]))
		open, at := []relay.MessageID{}, 1
		for at < len(ids)-limit { // then it may be live
			for len(open) < limit {
				c.expectMessage(ids[at])
				open, at = append(open, ids[at]), at+1
			}
			c.expectNothing()
			for range 1 + rand.IntN(limit) { // in any order
				i := rand.IntN(len(open))
				c.ack(open[i], "received")
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			}
		}
		c.CloseNow()
	}
}

// No message is acknowledged, or only one: the window opens again and again, on the same
// connection, and in the end the stream is live.
func TestAWindowInWhichNoPlaceBecomesFreeOpensAgain(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		for _, acked := range []int{0, 1} {
			r := mustServe(t, func(c *ws.Config) { c.SyncAckWait = 100 * time.Millisecond })
			alice, bob := r.mustPair()
			r.mustSendMany(alice, "bob^test", 20)
			ids := r.received(bob)
			c := r.mustDial(bob, "sync_limit=5&events=sync")
			c.expect("sync")
			c.expectMessage(ids[:5]...)
			for _, id := range ids[:acked] {
				c.ack(id, "completed")
			}
			c.expectMessage(ids[5:]...)
			if f := c.expect("sync"); f.Phase != "end" || f.Sent != 20 {
				t.Fatalf("got %+v", f)
			}
			c.expectMessage(r.mustSend(alice, "bob^test", `{}`))
			c.expectNothing()
		}
	})
}

// Without a wait, only an acknowledgement opens a full window.
func TestWithoutAWaitTheWindowStaysFull(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { c.SyncAckWait, c.PingEvery = 0, 100*time.Millisecond })
		alice, bob := r.mustPair()
		r.mustSendMany(alice, "bob^test", 3)
		ids := r.received(bob)
		c := r.mustUpgrade(bob, "sync_limit=2")
		pings := 0
		message := func() (text string) {
			t.Helper()
			op, text, err := c.frame()
			for ; err == nil && op == opPing; op, text, err = c.frame() {
				pings++
			}
			if err != nil || op != opText {
				t.Fatalf("got frame %x %s, %v", op, text, err)
			}
			return text
		}
		message()
		message()
		for pings = 0; pings < 5; pings++ { // rounds of the ticker, which would open it
			c.expectFrame(opPing)
		}
		c.mustWrite(masked(fin|opText, ackOf(string(ids[1]))))
		if text := message(); !strings.Contains(text, string(ids[2])) {
			t.Fatal(text)
		}
	})
}

// The window opens before an expired message as well, and skips it.
func TestAWindowMayOpenBeforeAnExpiredMessage(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { c.SyncAckWait = 100 * time.Millisecond })
		alice, bob := r.mustPair()
		first := r.mustSend(alice, "bob^test", `{}`)
		gone := r.mustSend(alice, "bob^test", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = r.soon() })
		last := r.mustSend(alice, "bob^test", `{}`)
		r.advance(time.Minute)
		r.expectState(bob, gone, relay.Expired)
		c := r.mustDial(bob, "sync_limit=1")
		c.expectMessage(first, last, r.mustSend(alice, "bob^test", `{}`))
	})
}

func (r *testRelay) expectState(k relay.IssuedKey, id relay.MessageID, want relay.State) {
	r.t.Helper()
	eventually(r.t, string(id)+" is "+want.String(), func() bool {
		m, err := r.Message(ctx, k.Mecha.Number, id)
		return err == nil && m.State == want
	})
}

// Any word of the recipient on any path frees a place.
func TestWhatFreesAPlace(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	other := r.mustDial(bob, "sync_limit=0&events=acks")
	ways := map[string]func(c *client, id relay.MessageID){
		"own frame":           func(c *client, id relay.MessageID) { c.ack(id, "completed") },
		"progress":            func(c *client, id relay.MessageID) { c.ack(id, "processing") },
		"a word of one's own": func(c *client, id relay.MessageID) { c.ack(id, "Seen") },
		"HTTP":                func(c *client, id relay.MessageID) { r.mustAck(bob, id, "failed") },
		"another socket":      func(c *client, id relay.MessageID) { other.ack(id, "completed"); other.expect("ack_ok") },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			a := r.mustSend(alice, "bob^test", `{}`)
			b := r.mustSend(alice, "bob^test", `{}`)
			other.expectMessage(a, b)
			c := r.mustDial(bob, "sync_limit=1")
			c.t = t
			c.expectMessage(a)
			c.expectNothing()
			way(c, a)
			c.expectMessage(b)
			for _, id := range []relay.MessageID{a, b} { // out of the next one's way
				if err := r.ack(bob, id, "completed"); err != nil && relay.ErrorCode(err) != relay.AlreadyAcknowledged {
					t.Fatal(err)
				}
			}
			c.CloseNow()
		})
	}
}

// A repeated acknowledgement changes nothing, but frees the place of a message that was
// acknowledged before this connection began.
func TestARepeatedAcknowledgementFreesAPlace(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 3)
	ids := r.received(bob)
	r.mustAck(bob, ids[0], "processing")
	r.mustAck(bob, ids[1], "processing")
	c := r.mustDial(bob, "sync_limit=1&events=acks")
	c.expectMessage(ids[0])
	c.expectNothing()
	c.ack(ids[0], "processing")
	c.expect("ack_ok")
	c.expectMessage(ids[1])
	r.mustAck(bob, ids[1], "processing")
	c.expectMessage(ids[2])
}

// With a cursor, messages that were acknowledged long ago are sent again. They take no
// place: a client that does not acknowledge them once more gets what is new behind them.
func TestMessagesThatWereAcknowledgedTakeNoPlace(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 200)
	ids := r.received(bob)
	for i, id := range ids[1:198] {
		r.mustAck(bob, id, []string{"completed", "seen"}[i%2])
	}
	c := r.mustDial(bob, "sync_limit=1&since_message_id="+string(ids[0]))
	c.expectMessage(ids[1:199]...)
	c.expectNothing()
	c.ack(ids[198], "received")
	c.expectMessage(ids[199])
}

// Neither the wrong Mecha's acknowledgement nor a delivery mark frees a place.
func TestWhatFreesNoPlace(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		a := r.mustSend(alice, "bob^test", `{}`)
		b := r.mustSend(alice, "bob^test", `{}`)
		c := r.mustDial(bob, "sync_limit=1")
		c.expectMessage(a)
		synctest.Wait() // it has seen b, and waits for a place
		if err := r.ack(alice, a, "completed"); relay.ErrorCode(err) != relay.RecipientOnly {
			t.Fatal(err)
		}
		if _, err := r.MarkDelivered(&relay.MarkDelivered{At: time.Now(), Key: bob.Number, ID: a}); err != nil {
			t.Fatal(err)
		}
		c.ack(b, "completed") // not in flight
		c.expectNothing()
		third := r.mustSend(alice, "bob^test", `{}`)
		c.expectNothing()
		c.ack(a, "completed")
		c.expectMessage(third)
	})
}

func TestExpiryFreesPlaces(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		a := r.mustSend(alice, "bob^test", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = r.soon() })
		b := r.mustSend(alice, "bob^test", `{}`)
		c := r.mustDial(bob, "sync_limit=1")
		c.expectMessage(a)
		c.expectNothing()
		r.advance(time.Minute)
		c.expectMessage(b) // only once a has expired
		if m, err := r.Message(ctx, bob.Mecha.Number, a); err != nil || m.State != relay.Expired {
			t.Fatalf("the window was overrun: %+v, %v", m, err)
		}
	})
}

// Several connections of one Mecha sync, one acknowledges. Each of its words is
// for all, even if another one is just about to send that message.
func TestAcknowledgementsOnAnotherConnectionAreNotMissed(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	n := scratch.Amount(t, 300, 1000)
	r.mustSendMany(alice, "bob^test", n)
	last := r.mustSend(alice, "bob^test", `{}`)
	worker := r.mustDial(bob, "sync_limit=3")
	var wg sync.WaitGroup
	for i := range 6 {
		watcher := r.mustDial(bob, "sync_limit="+strconv.Itoa(i+1))
		wg.Go(func() {
			for seen := relay.MessageID(""); seen != last; {
				f, err := watcher.next()
				if err != nil || f.MessageID <= seen { // text order is commit order
					t.Errorf("after %s: got %+v, %v", seen, f, err)
					return
				}
				seen = f.MessageID
			}
		})
	}
	expectSame(t, worker.takeAll(n), r.received(bob)[:n])
	wg.Wait()
}

// The hub tells since when a socket with a full window has been open, and how many messages it was sent
// that are not acknowledged. When there is room again, it tells of none.
func TestAFullWindowIsTold(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		r.mustSendMany(alice, "bob^test", 5)
		if open, sent := r.hub.Full(bob.Mecha.Number); !open.IsZero() || sent != 0 {
			t.Fatal("nobody is connected, but a window is full since", open, sent)
		}
		before := time.Now()
		c := r.mustDial(bob, "sync_limit=2")
		first, second := c.expect("message"), c.expect("message")
		eventually(t, "the window is full", func() bool { _, sent := r.hub.Full(bob.Mecha.Number); return sent == 2 })
		if open, _ := r.hub.Full(bob.Mecha.Number); open.Before(before) || open.After(time.Now()) {
			t.Errorf("the socket was opened after %v, and is told to be open since %v", before, open)
		}
		c.ack(first.MessageID, "completed")
		c.ack(second.MessageID, "completed")
		c.takeAll(3)
		eventually(t, "no window is full", func() bool { open, sent := r.hub.Full(bob.Mecha.Number); return open.IsZero() && sent == 0 })
	})
}
