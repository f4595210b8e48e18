package ws_test

import (
	"fmt"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch/wire"
)

// expectReceipt reads a receipt, and sees that it says what the record says.
func (c *client) expectReceipt(id relay.MessageID, state relay.State, status, detail string) {
	c.t.Helper()
	f := c.expect("receipt")
	at, err := relay.ParseTime(f.At)
	if f.MessageID != id || f.State != state.String() || f.Status != status || f.Detail != detail || err != nil || time.Since(at).Abs() > 5*time.Minute {
		c.t.Fatalf("got receipt %+v, want %s %s %s", f, id, state, status)
	}
}

func (r *testRelay) mustDeliver(k relay.IssuedKey, id relay.MessageID) {
	r.t.Helper()
	if _, err := r.MarkDelivered(&relay.MarkDelivered{At: time.Now(), Key: k.Number, ID: id}); err != nil {
		r.t.Fatal(err)
	}
}

func TestReceiptsTellTheSenderOfEachChangeOnce(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	c := r.mustDial(alice, "events=receipts")
	also := r.mustDial(alice, "sync_limit=0&events=acks,receipts,unknown")
	id := r.mustSend(alice, "bob^test", `{}`)

	r.mustDeliver(bob, id)
	c.expectReceipt(id, relay.Delivered, "", "")
	r.mustDeliver(bob, id) // changes nothing
	r.mustAck(bob, id, "processing")
	c.expectReceipt(id, relay.Delivered, "processing", "")
	r.mustAck(bob, id, "read") // acknowledges, and others may follow
	c.expectReceipt(id, relay.Acknowledged, "read", "")
	a := &relay.Acknowledge{At: time.Now(), Key: bob.Number, ID: id, Status: "failed", ClientTS: clientTS, Detail: "no \"seats\"\u2028"}
	if _, err := r.Acknowledge(a); err != nil {
		t.Fatal(err)
	}
	c.expectReceipt(id, relay.Acknowledged, "failed", "no \"seats\"\u2028")
	r.mustAck(bob, id, "failed") // a duplicate
	if err := r.ack(bob, id, "completed"); relay.ErrorCode(err) != relay.AlreadyAcknowledged {
		t.Fatal(err)
	}
	r.mustDeliver(bob, id)

	// An acknowledgement that implies delivery is one change.
	second := r.mustSend(alice, "bob^test", `{}`)
	r.mustAck(bob, second, "completed")
	c.expectReceipt(second, relay.Acknowledged, "completed", "")
	c.expectNothing()

	also.expectReceipt(id, relay.Delivered, "", "")
	also.expectReceipt(id, relay.Delivered, "processing", "")
	also.expectReceipt(id, relay.Acknowledged, "read", "")
	also.expectReceipt(id, relay.Acknowledged, "failed", "no \"seats\"\u2028")
	also.expectReceipt(second, relay.Acknowledged, "completed", "")
	also.expectNothing()
}

func TestExpiryIsReceipted(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		c := r.mustDial(alice, "events=receipts")
		soon := func(m *relay.SendMessage) { m.ExpiresAt = r.soon() }
		queued, delivered, done := r.mustSend(alice, "bob^test", `{}`, soon), r.mustSend(alice, "bob^test", `{}`, soon), r.mustSend(alice, "bob^test", `{}`, soon)
		r.mustDeliver(bob, delivered)
		r.mustAck(bob, done, "completed")
		c.expectReceipt(delivered, relay.Delivered, "", "")
		c.expectReceipt(done, relay.Acknowledged, "completed", "")
		r.advance(2 * time.Minute) // past the time of the last one, too
		c.expectReceipt(queued, relay.Expired, "", "")
		c.expectReceipt(delivered, relay.Expired, "", "")
		if err := r.ack(bob, queued, "completed"); relay.ErrorCode(err) != relay.MessageExpired {
			t.Fatal(err)
		}
		c.expectNothing()
	})
}

func TestReceiptsGoToTheSenderAlone(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	carol := r.mustIssue("carol^test")
	all := "events=receipts"
	ofBob, ofCarol := r.mustDial(bob, all), r.mustDial(carol, all)
	id := r.mustSend(alice, "bob^test", `{}`)
	ofBob.expectMessage(id)
	r.mustAck(bob, id, "completed")
	ofBob.expectNothing()
	ofCarol.expectNothing()

	toSelf := r.mustSend(carol, "carol^test", `{}`)
	ofCarol.expectMessage(toSelf)
	r.mustAck(carol, toSelf, "completed")
	ofCarol.expectReceipt(toSelf, relay.Acknowledged, "completed", "")
	ofCarol.expectNothing()
}

func TestReceiptsOfManyAtOnce(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	c := r.mustDial(alice, "events=receipts")
	r.mustSendMany(alice, "bob^test", 500)
	w := r.mustDial(bob, "")
	ids := w.takeAll(500)
	for _, id := range ids { // one reader's acknowledgements are committed in their order
		c.expectReceipt(id, relay.Acknowledged, "completed", "")
	}
	c.expectNothing()
}

func TestAckOKComesOnceTheAcknowledgementIsStored(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	c := r.mustDial(bob, "events=acks")
	for i := range 50 {
		id := r.mustSend(alice, "bob^test", `{}`)
		c.expectMessage(id)
		status, state := "Completed", relay.Acknowledged
		if i%2 == 1 {
			status, state = "received", relay.Delivered
		}
		c.ack(id, status)
		f := c.expect("ack_ok")
		m, err := r.Message(ctx, bob.Mecha.Number, id)
		if err != nil || m.Ack == nil || m.State != state {
			t.Fatalf("ack_ok came before the acknowledgement was stored: %+v, %v", m, err)
		}
		if f.MessageID != id || f.State != state.String() || f.Status != m.Ack.Status {
			t.Fatalf("got %+v", f)
		}
	}
	id := r.mustSend(alice, "bob^test", `{}`)
	c.expectMessage(id)
	r.mustAck(bob, id, "completed") // on another path: no ack_ok
	c.ack(id, "completed")          // a duplicate is as good
	if f := c.expect("ack_ok"); f.MessageID != id || f.State != "acknowledged" || f.Status != "completed" {
		t.Fatalf("got %+v", f)
	}
	c.ack(id, "failed")
	c.expectError(relay.AlreadyAcknowledged, id)
	c.expectNothing()
}

func TestSyncFramesEncloseTheBacklog(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	expectSync := func(c *client, phase string, sent int) {
		t.Helper()
		if f := c.expect("sync"); f.Phase != phase || f.Sent != sent {
			t.Fatalf("got %+v, want %s %d", f, phase, sent)
		}
	}
	for _, n := range []int{0, 1, 5, 64, 200, 300} {
		carol := r.mustIssue(relay.Address(fmt.Sprintf("carol%d^test", n)))
		r.mustSendMany(alice, carol.Mecha.Address, n)
		c := r.mustDial(carol, "events=sync")
		expectSync(c, "start", 0)
		expectSame(t, c.takeAll(n), r.received(carol))
		expectSync(c, "end", n)
		c.expectMessage(r.mustSend(alice, carol.Mecha.Address, `{}`))
		c.expectNothing()
	}
	live := r.mustDial(bob, "events=sync&sync_limit=0")
	expectSync(live, "start", 0)
	expectSync(live, "end", 0)
	live.expectMessage(r.mustSend(alice, "bob^test", `{}`))
}

// A client that knows the interface document alone gets nothing that is not in it.
func TestWithoutOptInThereAreOnlyMessages(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	first := r.mustSend(alice, "bob^test", `{}`)
	for _, query := range []string{"", "events=", "events=none", "event=receipts", "events=RECEIPTS"} {
		a, b := r.mustDial(alice, query), r.mustDial(bob, query)
		b.expectMessage(first)
		id := r.mustSend(alice, "bob^test", `{}`)
		b.expectMessage(id)
		r.mustDeliver(bob, id)
		b.ack(id, "completed")
		r.expectState(bob, id, relay.Acknowledged)
		a.expectNothing()
		b.expectNothing()
		a.CloseNow()
		b.CloseNow()
	}
}
