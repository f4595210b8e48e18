package db_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/db"
	"relay/db/file"
	"relay/db/relay"
)

// mustFill makes a file with rows of every kind, and closes it.
func mustFill(t *testing.T) string {
	t.Helper()
	var ahead atomic.Int64 // of the clock
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s := mustOpen(t, toCrews(100), func(o *db.Options) { o.Now = now; db.Learns(o, relay.DefaultHalfLife) })
	expired := make(chan relay.MessageID, 10)
	s.OnCommit(func(c *relay.Commit) {
		for _, change := range c.Changes {
			if change.State == relay.Expired {
				expired <- change.ID
			}
		}
	})
	alice, bob, carol, dave := s.mustIssue("alice^demo"), s.mustIssue("bob^demo"), s.mustIssue("carol^demo"), s.mustIssue("dave^demo")
	if _, err := s.Issue(&relay.IssueKey{At: now(), Address: "alice^demo", Label: "laptop", WithSecret: true}); err != nil {
		t.Fatal(err)
	}
	s.mustSend(alice.Key, "bob^demo", `{"n": 1, "n": {"n": 2, "n": 3}}`) // inside a payload, names may come twice
	delivered := s.mustSend(alice.Key, "bob^demo", `{"n": 2}`)
	if _, err := s.MarkDelivered(&relay.MarkDelivered{At: now(), Key: bob.Number, ID: delivered.ID}); err != nil {
		t.Fatal(err)
	}
	question := s.mustSend(alice.Key, "bob^demo", `{"n": 3}`)
	for _, word := range []string{"received", "processing", "noted", "processing", "completed"} {
		s.mustAck(bob.Key, question.ID, word)
	}
	in := func(c relay.ConversationID) func(*relay.SendMessage) {
		return func(m *relay.SendMessage) { m.Conversation = c }
	}
	s.mustSend(bob.Key, "alice^demo", `{"n": 4}`, in(question.Conversation), func(m *relay.SendMessage) {
		m.InReplyTo = question.ID
		m.Type, m.Priority, m.Version = strings.Repeat("😀", 64), strings.Repeat("𝄞", 32), strings.Repeat("𝄞", 32)
	})
	s.mustSend(bob.Key, "carol^demo", `{"n": 5}`, in(question.Conversation))
	s.mustSend(carol.Key, "alice^demo", `{"n": 6}`, in(question.Conversation))
	s.mustSend(carol.Key, "bob^demo", `{"n": 7}`, in("a-label"))
	soon := s.mustSend(alice.Key, "carol^demo", `{"n": 8}`, func(m *relay.SendMessage) { m.ExpiresAt = m.At.Add(time.Minute) })
	if _, err := s.MarkDelivered(&relay.MarkDelivered{At: now(), Key: carol.Number, ID: soon.ID}); err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(2 * time.Minute))
	select {
	case <-expired:
	case <-time.After(time.Minute):
		t.Fatal("nothing expired")
	}
	p, err := relay.ReadProfile([]byte(`{"description": "books <flights>", "tags": ["travel"], "visibility": "crew", "accept_from": ["*^demo"], "card": {"name": "Bob"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutProfile(&relay.PutProfile{At: now(), Address: "bob^demo", Profile: p.Stored(), Nonce: 5}); err != nil {
		t.Fatal(err)
	}
	s.mustSend(alice.Key, "dave^demo", `{"n": 9}`)
	s.mustSend(alice.Key, "*^demo", `{"n": 10}`)
	if err := s.RemoveMecha(&relay.RemoveMecha{At: now(), Address: dave.Mecha.Address}); err != nil {
		t.Fatal(err)
	}
	saved := make(chan error, 1)
	s.SaveSearch(&relay.SaveSearch{At: now(), ID: relay.NewSearchID(), Mecha: alice.Mecha.Number, Answer: []byte(`{"results": []}`), Nonce: 7}, func(err error) { saved <- err })
	if err := <-saved; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Path()
}

// found checks a file. It returns the names of the checks with faults, and the faults.
func found(t testing.TB, path string, options ...func(*file.CheckOptions)) (names []string, said string, r file.CheckResult) {
	t.Helper()
	o := file.CheckOptions{Path: path, Schema: schema(t), Report: func(f file.Finding) {
		if f.Faults > 0 {
			names = append(names, f.Check)
			said += f.Check + ": " + strings.Join(f.Examples, "; ") + "\n"
		}
	}}
	for _, f := range options {
		f(&o)
	}
	r, err := file.Check(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if (len(names) == 0) != (r.Faults+r.Warnings == 0) {
		t.Errorf("%v were reported, %d faults and %d warnings counted", names, r.Faults, r.Warnings)
	}
	return names, said, r
}
