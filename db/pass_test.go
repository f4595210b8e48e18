package db

import (
	"fmt"
	"testing"
	"time"

	"relay/db/internal/mailbox"
	"relay/db/relay"
)

// mustSendNow sends a message to its own sender, at the time of the clock.
func mustSendNow(t *testing.T, d *DB, c *setClock, k *relay.Key, more ...func(*relay.SendMessage)) relay.Sent {
	t.Helper()
	m := message(k, k.Mecha.Address, `{}`)
	m.At = c.now()
	for _, f := range more {
		f(m)
	}
	sent, err := d.Send(m)
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// Notes of pushes go at the age of messages, even if no message gets so old, because all
// of them expire before that.
func TestNotesOfPushesGoThoughNoMessageGetsOld(t *testing.T) {
	t.Parallel()
	c := &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	const age = 30 * time.Hour
	d := openHere(t, keeping(c, age, func(o *Options) { o.KeepExpired = time.Hour })...)
	k := mustIssue(t, d, "a^b")
	for range 40 {
		sent := mustSendNow(t, d, c, k, func(m *relay.SendMessage) { m.ExpiresAt = c.now().Add(time.Minute) })
		p, _ := d.w.IDs.MessagePosition(sent.ID)
		d.Pushed(k.Number, c.now(), []relay.Position{p})
		c.pass(age / 10)
		mustRun(t, d)
	}
	due := relay.PositionAt(c.now().Add(-age - 2*age/24))
	if n := scalar(t, d, fmt.Sprintf("SELECT count(*) FROM push WHERE position < %d", due)); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if n := scalar(t, d, "SELECT count(*) FROM push"); n == 0 {
		t.Error("all rows are gone")
	}
}

// A message that has changed a moment ago stays, and goes with a later run.
func TestAMessageThatHadToStayGoesLater(t *testing.T) {
	t.Parallel()
	c := &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	d := openHere(t, keeping(c, 48*time.Hour)...)
	k := mustIssue(t, d, "a^b")
	sent := mustSendNow(t, d, c, k)
	for i := range 52 { // a run an hour
		if i > 46 {
			a := &relay.Acknowledge{At: c.now().Add(time.Hour), Key: k.Number, ID: sent.ID, Status: "processing", ClientTS: "2026-01-01T00:00:00Z", Detail: fmt.Sprint(i)}
			if _, err := d.Acknowledge(a); err != nil {
				t.Fatal(err)
			}
		}
		c.pass(time.Hour)
		mustRun(t, d)
	}
	if n := scalar(t, d, "SELECT count(*) FROM message"); n != 1 {
		t.Fatal("it is gone")
	}
	for range 2 {
		mustSendNow(t, d, c, k)
		c.pass(time.Hour)
		mustRun(t, d)
	}
	if n := scalar(t, d, fmt.Sprintf("SELECT count(*) FROM message WHERE position <= %d", relay.PositionAt(c.now().Add(-48*time.Hour)))); n != 0 {
		t.Error("a message older than the age is still there")
	}
}

// A message may be removed, and its rows with it, before it is indexed. It must not be
// indexed later.
func TestAMessageThatWasRemovedIsNotIndexed(t *testing.T) {
	t.Parallel()
	d, c := openSetClock(t)
	k := mustIssue(t, d, "a^b")
	var last relay.MessageID
	for n := range mailbox.SegmentLength - 1 { // they wait for a longer segment
		sent := mustSendNow(t, d, c, k, func(m *relay.SendMessage) {
			m.InReplyTo = last
			if n < 2 {
				m.Conversation = "a-label"
			}
		})
		last = sent.ID
	}
	out, err := d.Apply(&relay.PruneMessages{At: c.now(), Before: relay.MaxPosition, Limit: 2})
	if err != nil || out.(relay.Pruned).Messages != 2 {
		t.Fatalf("%+v, %v", out, err)
	}
	c.pass(2 * mailbox.CleanAfter)
	mustReach(t, d, "rows that wait to be deleted", "SELECT count(*) FROM unlisted", 0)
	path := d.w.Path
	if err := d.Close(); err != nil { // indexes the others
		t.Fatal(err)
	}
	if _, said, r := checked(t, path); r.Faults > 0 {
		t.Error(said)
	}
}

// The parties of a conversation that was dormant take part in it after it was woken, when
// no row of its founding message is left.
func TestThePartiesOfAWokenConversationStay(t *testing.T) {
	t.Parallel()
	d, c := openSetClock(t)
	alice, bob, carol := mustIssue(t, d, "alice^x"), mustIssue(t, d, "bob^x"), mustIssue(t, d, "carol^x")
	send := func(from, to *relay.Key, in relay.ConversationID) (relay.Sent, error) {
		m := message(from, to.Mecha.Address, `{}`)
		m.At, m.Conversation = c.now(), in
		return d.Send(m)
	}
	first, err := send(alice, bob, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Apply(&relay.PruneMessages{At: c.now(), Before: relay.MaxPosition, Limit: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := send(alice, carol, first.Conversation); err != nil { // wakes it without bob
		t.Fatal(err)
	}
	if _, err := send(bob, alice, first.Conversation); err != nil {
		t.Errorf("bob: %v", err)
	}
}
