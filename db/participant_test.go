package db_test

import (
	"testing"

	"relay/db/relay"
)

// A conversation that a server has just used becomes dormant when its last message is removed, in
// any order of the messages. The next message wakes it.
func TestAConversationInUseBecomesDormantAndWakes(t *testing.T) {
	t.Parallel()
	for _, label := range []relay.ConversationID{"", "a-label"} {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			s := mustOpen(t)
			alice, bob := s.mustIssue("alice^x"), s.mustIssue("bob^x")
			var sent []relay.Sent
			in := func(m *relay.SendMessage) {
				if m.Conversation = label; len(sent) > 0 {
					m.Conversation = sent[0].Conversation
				}
			}
			for range 3 {
				sent = append(sent, s.mustSend(alice.Key, "bob^x", `{}`, in))
				alice, bob = bob, alice
			}
			for i, n := range order {
				s.wantDormant(0)
				p, err := s.Cursor(sent[n].ID)
				if err != nil {
					t.Fatal(err)
				}
				out, err := s.Apply(&relay.PruneMessages{At: later(), After: p - 1, Before: p + 1, Limit: 1})
				if err != nil || out.(relay.Pruned).Messages != 1 {
					t.Fatalf("removal %d: %+v, %v", i, out, err)
				}
			}
			s.wantDormant(1)
			s.mustSend(bob.Key, alice.Mecha.Address, `{}`, in)
			s.wantDormant(0)
			wantSound(t, s.Path())
		}
	}
}

// wantDormant counts the dormant conversations.
func (s store) wantDormant(want int) {
	s.t.Helper()
	if n := s.countRows("SELECT count(*) FROM dormant"); n != want {
		s.t.Errorf("%d conversations are dormant, want %d", n, want)
	}
}
