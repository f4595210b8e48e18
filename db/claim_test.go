package db_test

import (
	"testing"
	"time"

	"relay/db/relay"
)

// The messages of a claim depend on the file and on the claim alone: not on the times of
// the claims before it, which a restarted server does not know.
func TestAClaimDependsOnNoEarlierClaim(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
	now := time.Now()
	m := s.mustSend(alice.Key, "bob^demo", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = now.Add(time.Hour) })
	claim := func(at time.Time) int {
		t.Helper()
		got, err := s.ClaimMessages(ctx, &relay.ClaimMessages{At: at, Key: bob.Number, Limit: 9, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	if n := claim(now.Add(2 * time.Hour)); n != 0 {
		t.Fatalf("%d expired messages", n)
	}
	if n := claim(now); n != 1 {
		t.Fatalf("%d messages", n)
	}

	// A word of an earlier time, which comes later, does not shorten the lease.
	long := now.Add(10 * time.Minute)
	for _, at := range []time.Time{long, now} {
		a := &relay.Acknowledge{At: at, Key: bob.Number, ID: m.ID, Status: relay.Processing, ClientTS: "2026-11-20T08:00:00Z"}
		if _, err := s.Acknowledge(a); err != nil {
			t.Fatal(err)
		}
	}
	trace, _, err := s.Trace(ctx, bob.Mecha, m.ID)
	if want := long.Add(time.Minute).Truncate(time.Millisecond); err != nil || !trace.Situation.Until.Equal(want) {
		t.Errorf("the lease ends at %v, %v; want %v", trace.Situation.Until, err, want)
	}
}

// A worker that renews its lease leaves the detail of its latest status as it is. Another
// worker, or another attempt, reports again that it works on the message.
func TestARenewalKeepsTheDetailOfTheWork(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob, other := s.mustIssue("alice^demo"), s.mustIssue("bob^demo"), s.mustIssue("bob^demo")
	m := s.mustSend(alice.Key, "bob^demo", `{}`)
	if _, err := s.ClaimMessages(ctx, &relay.ClaimMessages{At: time.Now(), Key: bob.Number, Limit: 1, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	says := func(k relay.IssuedKey, detail, want string, duplicate bool) {
		t.Helper()
		a := &relay.Acknowledge{At: time.Now(), Key: k.Number, ID: m.ID, Status: relay.Processing, Detail: detail, ClientTS: "2026-11-20T08:00:00Z"}
		got, err := s.Acknowledge(a)
		if err != nil || got.Duplicate != duplicate {
			t.Errorf("%+v, %v", got, err)
		}
		if r, err := s.Message(ctx, alice.Mecha.Number, m.ID); err != nil || r.Ack.Detail != want {
			t.Errorf("%+v, %v; want the detail %q", r.Ack, err, want)
		}
	}
	says(bob, "half done", "half done", false)
	says(bob, "", "half done", true)
	says(bob, "nearly done", "nearly done", false)
	says(other, "", "", false)
}
