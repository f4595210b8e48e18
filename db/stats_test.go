package db

import (
	"testing"
	"time"

	"relay/db/relay"
)

// Stats does not keep one state of the file open until it has read all messages, so the server can
// start its log again meanwhile. Each message counts once, in the state that it has when it is read,
// and those that come later do not count.
func TestStatsReadInSeveralViews(t *testing.T) {
	usual := statsView
	statsView = 0
	t.Cleanup(func() { statsView = usual })
	d := openHere(t)
	alice, bob := mustIssue(t, d, "alice^demo"), mustIssue(t, d, "bob^demo")
	nonce := relay.NonceHash(0)
	send := func() relay.MessageID {
		t.Helper()
		nonce++
		m := &relay.SendMessage{At: time.Now(), Key: alice.Number, To: "bob^demo", Payload: []byte(`{}`), Nonce: nonce}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		sent, err := d.Send(m)
		if err != nil {
			t.Fatal(err)
		}
		return sent.ID
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
	in, err := Inspect(d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()

	c := statsCount{busy: map[int64]*Busy{}}
	see := func(f func(*rx) error) {
		t.Helper()
		if err := in.view(f); err != nil {
			t.Fatal(err)
		}
	}
	see(c.findLast)
	see(c.countMessages)
	if c.Messages == 0 || c.Messages > many/2 {
		t.Fatalf("the first view read %d of %d messages", c.Messages, many)
	}
	complete(ids[0])
	complete(ids[many-2])
	send()
	for c.read < c.last {
		see(c.countMessages)
	}
	see(c.findBusiest)
	if c.Messages != many || c.Queued != many-1 || c.Acknowledged != 1 || c.Expired != 0 || c.Oldest != ids[0] || c.OldestFor != "bob^demo" {
		t.Errorf("counted in several views: %+v", c.Stats)
	}
	s, err := in.Stats(t.Context())
	if err != nil || s.Messages != many+1 || s.Queued != many-1 || s.Acknowledged != 2 || s.Oldest != ids[1] {
		t.Errorf("counted after it: %+v, %v", s, err)
	}
	want := []Busy{{Mecha: "alice^demo", Sent: many + 1}, {Mecha: "bob^demo", Received: many + 1, Pending: many - 1}}
	if len(s.Busiest) != 2 || s.Busiest[0] != want[0] || s.Busiest[1] != want[1] {
		t.Errorf("busiest: %+v, want %+v", s.Busiest, want)
	}
}
