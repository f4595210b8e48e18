package ws_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
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
		r.mustSendMany(alice, bob.Mecha.Address, amount(150, 300))
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

func TestAClientThatDoesNotAcknowledgePagesThrough(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.SyncAckWait = 100 * time.Millisecond })
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 600)
	ids := r.received(bob)
	var got []relay.MessageID
	cursor := ""
	for pages := 1; ; pages++ {
		c := r.mustDial(bob, "sync_limit=100"+cursor)
		for range 100 {
			got = append(got, c.expect("message").MessageID)
		}
		last := string(got[len(got)-1])
		if pages == 6 { // nothing is left: this one is live
			c.ack(got[len(got)-1], "received")
			c.expectMessage(r.mustSend(alice, "bob^test", `{}`))
			break
		}
		if reason := c.expectClose(websocket.StatusTryAgainLater); reason != "resume after "+last {
			t.Fatalf("page %d ended with %q, want resume after %s", pages, reason, last)
		}
		cursor = "&since_message_id=" + last
	}
	expectSame(t, got, ids)
}

// A page ends with the last message sent, not with one that the window held back.
func TestAPageMayEndBeforeAnExpiredMessage(t *testing.T) {
	r := mustServe(t, func(c *ws.Config) { c.SyncAckWait = 100 * time.Millisecond })
	alice, bob := r.mustPair()
	first := r.mustSend(alice, "bob^test", `{}`)
	gone := r.mustSend(alice, "bob^test", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = r.soon() })
	last := r.mustSend(alice, "bob^test", `{}`)
	r.advance(time.Minute)
	r.expectState(bob, gone, relay.Expired)
	c := r.mustDial(bob, "sync_limit=1")
	c.expectMessage(first)
	if reason := c.expectClose(websocket.StatusTryAgainLater); reason != "resume after "+string(first) {
		t.Fatal(reason)
	}
	c = r.mustDial(bob, "sync_limit=1&since_message_id="+string(first))
	c.expectMessage(last)
	c.ack(last, "received")
	c.expectMessage(r.mustSend(alice, "bob^test", `{}`))
}

func (r *testRelay) expectState(k relay.IssuedKey, id relay.MessageID, want relay.State) {
	r.t.Helper()
	eventually(r.t, string(id)+" is "+want.String(), func() bool {
		m, err := r.Message(ctx, k.Mecha.Number, id)
		return err == nil && m.State == want
	})
}

func TestASlowAcknowledgerIsNotClosed(t *testing.T) {
	t.Parallel()
	const wait = time.Second
	r := mustServe(t, func(c *ws.Config) { c.SyncAckWait = wait })
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 5)
	ids := r.received(bob)
	c := r.mustDial(bob, "sync_limit=2")
	c.expectMessage(ids[0], ids[1])
	c.ack(ids[0], "received")
	for i := 2; i < len(ids); i++ {
		c.expectMessage(ids[i])
		<-time.After(3 * wait / 2) // what this test is about
		c.ack(ids[i-1], "completed")
	}
	c.expectMessage(r.mustSend(alice, "bob^test", `{}`))
}

// Any word of the recipient on any path frees a place.
func TestWhatFreesAPlace(t *testing.T) {
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

// With a cursor, a message that was acknowledged long ago is sent again, holds a place
// like any other, and a repeated or refused acknowledgement frees it.
func TestRepeatedAcknowledgementsFreePlaces(t *testing.T) {
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 6)
	ids := r.received(bob)
	for _, id := range ids[1:5] {
		r.mustAck(bob, id, "completed")
	}
	c := r.mustDial(bob, "sync_limit=1&since_message_id="+string(ids[0]))
	c.expectMessage(ids[1])
	c.expectNothing()
	c.ack(ids[1], "completed")
	c.expectMessage(ids[2])
	r.mustAck(bob, ids[2], "completed")
	c.expectMessage(ids[3])
	c.ack(ids[3], "failed")
	if f := c.expect("error"); f.Code != relay.AlreadyAcknowledged {
		t.Fatalf("got %+v", f)
	}
	c.expectMessage(ids[4])
	if err := r.ack(bob, ids[4], "rejected"); relay.ErrorCode(err) != relay.AlreadyAcknowledged {
		t.Fatal(err)
	}
	c.expectMessage(ids[5])
}

// Neither the wrong Mecha's acknowledgement nor a delivery mark frees a place.
func TestWhatFreesNoPlace(t *testing.T) {
	r := mustServe(t)
	alice, bob := r.mustPair()
	a := r.mustSend(alice, "bob^test", `{}`)
	b := r.mustSend(alice, "bob^test", `{}`)
	c := r.mustDial(bob, "sync_limit=1")
	c.expectMessage(a)
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
}

func TestExpiryFreesPlaces(t *testing.T) {
	t.Parallel()
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
}

// An expiry is no sign of life: it does not spare a client that never acknowledges.
func TestExpiryIsNoAcknowledgement(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.SyncAckWait = 3 * time.Second })
	alice, bob := r.mustPair()
	a := r.mustSend(alice, "bob^test", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = r.soon() })
	b := r.mustSend(alice, "bob^test", `{}`)
	r.mustSend(alice, "bob^test", `{}`)
	c := r.mustDial(bob, "sync_limit=1")
	c.expectMessage(a)
	r.advance(time.Minute)
	c.expectMessage(b)
	if reason := c.expectClose(websocket.StatusTryAgainLater); reason != "resume after "+string(b) {
		t.Fatal(reason)
	}
}

// Several connections of one Mecha sync, one acknowledges. Each of its words is
// for all, even if another one is just about to send that message.
func TestAcknowledgementsOnAnotherConnectionAreNotMissed(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	n := amount(300, 1000)
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
