package survey_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"relay/db"
	"relay/db/dbtest"
	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
)

// The counts of an Overview are those that Waiting makes of all messages, whether the index
// tables have them or not. If a Mecha has more than its share, they are the least that there are.
func TestAnOverviewCountsWhatWaits(t *testing.T) {
	for _, serve := range []bool{false, true} {
		d := dbtest.Open(t, func(o *db.Options) { o.Serve = serve })
		issue := func(a relay.Address) relay.IssuedKey { // before the first message
			t.Helper()
			k, err := d.Issue(&relay.IssueKey{At: time.Now().Add(-2 * time.Hour), Address: a})
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		alice, nonce := issue("alice^demo"), relay.NonceHash(0)
		send := func(past time.Duration, to relay.IssuedKey, more func(*relay.SendMessage)) relay.MessageID {
			t.Helper()
			nonce++
			m := &relay.SendMessage{At: time.Now().Add(-past), Key: alice.Number, To: to.Mecha.Address, Payload: []byte(`{}`), Nonce: nonce}
			if more != nil {
				more(m)
			}
			return dbtest.Send(t, d, m)
		}
		keys := []relay.IssuedKey{issue("m0^demo"), issue("m1^demo"), issue("m2^demo")}
		for n, k := range keys {
			for i := range 3 * (n + 1) {
				send(time.Hour-time.Duration(i)*time.Second, k, func(m *relay.SendMessage) {
					switch {
					case i == 0 && !serve: // a server would settle it
						m.ExpiresAt = m.At.Add(30 * time.Minute) // dead
					case i == 1 && !serve: // likewise
						m.AckBy = m.At.Add(time.Minute) // overdue
					}
				})
			}
		}
		for n, k := range keys {
			send(time.Minute, k, nil)
			nonce++
			if n > 0 {
				if _, err := d.ClaimMessages(t.Context(), &relay.ClaimMessages{At: time.Now(), Key: k.Number, Limit: n, Lease: time.Hour, Nonce: nonce}); err != nil {
					t.Fatal(err)
				}
			}
			id := send(time.Second, k, nil)
			nonce++
			put := &relay.Acknowledge{At: time.Now(), Key: k.Number, ID: id, Status: relay.Deferred, RetryAfter: time.Hour, ClientTS: relay.FormatTime(time.Now()), Nonce: nonce}
			if _, err := d.Acknowledge(put); err != nil {
				t.Fatal(err)
			}
		}
		path := d.Path()
		if serve { // the end of a server indexes all
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
		in, err := browse.Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close() })
		boxes := func() map[relay.Address]survey.Box {
			t.Helper()
			o, err := (survey.Inspector{Inspector: in}).Overview(context.Background(), time.Now().Add(-10*time.Minute))
			if err != nil || len(o.Boxes) != len(keys) || o.Mechas != len(keys)+1 {
				t.Fatalf("%+v, %v", o, err)
			}
			all := map[relay.Address]survey.Box{}
			for _, b := range o.Boxes {
				all[b.Mecha] = b
			}
			return all
		}
		all := boxes()
		for n, k := range keys {
			a := k.Mecha.Address
			w, err := in.Waiting(context.Background(), a, 1)
			if err != nil {
				t.Fatal(err)
			}
			b := all[a]
			if b.Pending != w.Pending || b.Held != w.Held || b.Deferred != w.Deferred || b.Overdue != w.Overdue || b.Late != 3*(n+1)-survey.One(!serve) || b.More || b.LiveKeys != 1 || b.Oldest != w.Oldest[0].Message.ID {
				t.Errorf("serving %v: the box is %+v, what waits %+v", serve, b, w)
			}
		}
		if !serve {
			continue // nothing is indexed, and so there is no share
		}
		back := survey.Small()
		small := boxes()
		back()
		for _, k := range keys {
			b, whole := small[k.Mecha.Address], all[k.Mecha.Address]
			if b.More != (whole.Pending > 5) || b.Pending != 5 || b.Late > whole.Late || b.Late < 3 || b.Held > whole.Held || b.Oldest != whole.Oldest {
				t.Errorf("with a share of 5: %+v, all: %+v", b, whole)
			}
		}
	}
}

// To look for no push at all tells where the pushes end, so that later ones can be read from there.
func TestNoPushesEndWhereAllDo(t *testing.T) {
	d := dbtest.Open(t)
	k := dbtest.Issue(t, d, "alice^demo")
	in, err := browse.Inspect(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if list, next, err := (survey.Inspector{Inspector: in}).NewestPushes(0); err != nil || len(list) != 0 || next != 0 {
		t.Error(list, next, err)
	}
	for range 3 {
		d.Pushed(k.Number, time.Now(), []relay.Position{1})
		dbtest.Issue(t, d, relay.Address(fmt.Sprintf("m%d^demo", time.Now().UnixNano()))) // a transaction, which takes the note with it
	}
	_, all, err := (survey.Inspector{Inspector: in}).NewestPushes(10)
	if err != nil || all == 0 {
		t.Fatal(all, err)
	}
	if list, next, err := (survey.Inspector{Inspector: in}).NewestPushes(0); err != nil || len(list) != 0 || next != all {
		t.Errorf("%v, after %d, want %d: %v", list, next, all, err)
	}
}
