package backlog_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/dbtest"
	"relay/db/look"
	"relay/db/look/backlog"
	"relay/db/relay"
)

func inspect(t *testing.T, d *db.DB) *look.Inspector {
	t.Helper()
	in, err := look.Inspect(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

// Pending messages are counted whether or not the mailbox tables have them, and by a
// server that was started later; in one view or in many.
func TestPendingMessagesAreCountedByAge(t *testing.T) {
	now := time.Now().Add(10 * 24 * time.Hour).Truncate(time.Second) // the keys are issued now, and positions never go back
	serve := func(o *db.Options) { o.Serve, o.Now = true, func() time.Time { return now } }
	d := dbtest.Open(t, serve)
	in := inspect(t, d)
	from, to, nonce := dbtest.Issue(t, d, "from^crew"), dbtest.Issue(t, d, "to^crew"), relay.NonceHash(0)
	other := dbtest.Issue(t, d, "other^crew")
	// want counts the pending messages, which must be as many as at least as old as each of Ages.
	want := func(oldest time.Duration, older ...int) {
		t.Helper()
		for _, small := range []bool{false, true} {
			back := func() {}
			if small {
				back = backlog.Small()
			}
			p, err := backlog.CountPending(t.Context(), in, now)
			if back(); err != nil || !slices.Equal(p.Older, older) || p.Oldest.Truncate(time.Second) != oldest {
				t.Errorf("pending: %+v, %v; want %v, the oldest %v", p, err, older, oldest)
			}
		}
	}
	send := func(n int, k *relay.Key, age time.Duration) (ids []relay.MessageID) {
		t.Helper()
		for range n {
			nonce++
			m := &relay.SendMessage{At: now.Add(-age), Key: from.Number, To: k.Mecha.Address, Payload: []byte(`{}`), Nonce: nonce}
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			sent, err := d.Send(m)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, sent.ID)
		}
		return ids
	}
	ack := func(id relay.MessageID, status string) {
		t.Helper()
		nonce++
		a := &relay.Acknowledge{At: now, Key: to.Number, ID: id, Status: status, ClientTS: relay.FormatTime(now), Nonce: nonce}
		if _, err := d.Acknowledge(a); err != nil {
			t.Fatal(err)
		}
	}
	want(0, 0, 0, 0, 0, 0, 0)
	old := send(3, to, 8*24*time.Hour)
	send(2, other, 2*time.Hour)
	send(4, to, 30*time.Second)
	want(8*24*time.Hour, 9, 5, 5, 5, 3, 3)
	ack(old[0], "completed")
	want(8*24*time.Hour, 8, 4, 4, 4, 2, 2)
	if err := d.Close(); err != nil { // which indexes all
		t.Fatal(err)
	}
	now = now.Add(20 * time.Minute)
	path := d.Path()
	d = dbtest.Open(t, serve, func(o *db.Options) { o.Path = path })
	want(8*24*time.Hour+20*time.Minute, 8, 8, 8, 4, 2, 2)
	for _, id := range old[1:] {
		ack(id, "failed")
	}
	send(1, other, 0) // which the tables lack, while they have the others
	want(2*time.Hour+20*time.Minute, 7, 6, 6, 2, 0, 0)
}

// The lag is the age of the oldest change that the index lacks.
func TestTheLagOfTheIndex(t *testing.T) {
	d := dbtest.Open(t)
	in := inspect(t, d)
	dbtest.Issue(t, d, "a^crew")
	now := time.Now().Add(time.Hour)
	lag, err := backlog.IndexLag(t.Context(), in, 0, now)
	if err != nil || lag.Round(time.Minute) != time.Hour {
		t.Errorf("%v, %v", lag, err)
	}
	if lag, err := backlog.IndexLag(t.Context(), in, relay.MaxPosition, now); err != nil || lag != 0 {
		t.Errorf("an index that has all: %v, %v", lag, err)
	}
}

// Each row that is counted is read from an index, once.
func TestCountingReadsARange(t *testing.T) {
	n := int64(1)
	plan := dbtest.Plan(t, inspect(t, dbtest.Open(t)), backlog.CountReceived, n, n, n, n, n, n, n, n, n)
	if !strings.Contains(plan, "SEARCH received USING PRIMARY KEY (mecha=? AND open=? AND position>? AND position<?)") {
		t.Error(plan)
	}
}
