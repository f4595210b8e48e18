package db

import (
	"fmt"
	"testing"
	"time"

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

// Notes of pushes go at the age of messages, also if no message gets so old, because all
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
		p, _ := d.ids.MessagePosition(sent.ID)
		d.Pushed(k.Number, c.now(), []relay.Position{p})
		c.pass(age / 10)
		mustRun(t, d)
	}
	due := relay.PositionAt(c.now().Add(-age - 2*age/runsPerAge))
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
		t.Error("it stays for ever")
	}
}
