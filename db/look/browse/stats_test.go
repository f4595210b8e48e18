package browse_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"relay/db/dbtest"
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/look/browse"
	"relay/db/relay"
)

// Stats does not keep one state of the file open until it has read all messages, so the server can
// start its log again meanwhile. Each message counts once, in the state that it has when it is read,
// and those that come later do not count.
func TestStatsReadInSeveralViews(t *testing.T) {
	t.Cleanup(browse.ShortViews())
	d := dbtest.Open(t)
	alice, bob := dbtest.Issue(t, d, "alice^demo"), dbtest.Issue(t, d, "bob^demo")
	nonce := relay.NonceHash(0)
	send := func() relay.MessageID {
		t.Helper()
		nonce++
		return dbtest.Send(t, d, &relay.SendMessage{At: time.Now(), Key: alice.Number, To: "bob^demo", Payload: []byte(`{}`), Nonce: nonce})
	}
	complete := func(id relay.MessageID) {
		t.Helper()
		nonce++
		if _, err := d.Acknowledge(&relay.Acknowledge{At: time.Now(), Key: bob.Number, ID: id, Status: relay.Completed, ClientTS: relay.FormatTime(time.Now()), Nonce: nonce}); err != nil {
			t.Fatal(err)
		}
	}
	const many = 600
	var ids []relay.MessageID
	for range many {
		ids = append(ids, send())
	}
	in := open(t, d.Path())

	c := browse.NewCount()
	see := func(f func(*engine.Rx) error) {
		t.Helper()
		if err := in.Point(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	see(c.FindLast)
	see(c.CountMessages)
	if c.Messages == 0 || c.Messages > many/2 {
		t.Fatalf("the first view read %d of %d messages", c.Messages, many)
	}
	complete(ids[0])
	complete(ids[many-2])
	send()
	for !c.Done() {
		see(c.CountMessages)
	}
	see(c.FindBusiest)
	if c.Messages != many || c.Queued != many-1 || c.Acknowledged != 1 || c.Expired != 0 || c.Oldest != ids[0] || c.OldestFor != "bob^demo" {
		t.Errorf("counted in several views: %+v", c.Stats)
	}
	s, err := in.Stats(t.Context())
	if err != nil || s.Messages != many+1 || s.Queued != many-1 || s.Acknowledged != 2 || s.Oldest != ids[1] {
		t.Errorf("counted after it: %+v, %v", s, err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	if _, err := in.Stats(over); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
	want := []browse.Busy{{Mecha: "alice^demo", Sent: many + 1}, {Mecha: "bob^demo", Received: many + 1, Pending: many - 1}}
	if len(s.Busiest) != 2 || s.Busiest[0] != want[0] || s.Busiest[1] != want[1] {
		t.Errorf("busiest: %+v, want %+v", s.Busiest, want)
	}
}

// The row of a removed Mecha can go with its last message while messages are counted. The
// figures still have its address.
func TestStatsOfAMechaThatGoesMeanwhile(t *testing.T) {
	d := dbtest.Open(t)
	alice := dbtest.Issue(t, d, "alice^demo")
	dbtest.Issue(t, d, "bob^demo")
	m := &relay.SendMessage{At: time.Now(), Key: alice.Number, To: "bob^demo", Payload: []byte(`{}`), Nonce: 1}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Send(m); err != nil {
		t.Fatal(err)
	}
	path := d.Path()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	in := open(t, path)
	c := browse.NewCount()
	for _, f := range []func(*engine.Rx) error{c.FindLast, c.CountMessages} {
		if err := in.Point(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	byHand, err := sqlite.Open(path, sqlite.Writing)
	if err != nil {
		t.Fatal(err)
	}
	_, off := byHand.Row(nil, "PRAGMA foreign_keys = OFF")
	if err := errors.Join(off, byHand.Exec("DELETE FROM mecha"), byHand.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Changed(); err != nil { // its addresses are not remembered
		t.Fatal(err)
	}
	if err := in.Point(t.Context(), c.FindBusiest); err != nil || len(c.Busiest) != 2 || c.Busiest[0].Mecha != "alice^demo" || c.OldestFor != "bob^demo" {
		t.Errorf("%+v, %v", c.Stats, err)
	}
}
