package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"relay/db/relay"
)

// Receipts reads the same changes that the listeners are told, in pages of any size.
func TestReceiptsAreReadAsTheyWereTold(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	changes := s.tellChanges()
	alice, bob, carol := s.mustIssue("alice^demo"), s.mustIssue("bob^demo"), s.mustIssue("carol^demo")
	soon := func(m *relay.SendMessage) { m.ExpiresAt = time.Now().Add(50 * time.Millisecond) }
	for i := range 12 {
		for _, from := range []relay.IssuedKey{alice, carol} {
			id := s.mustSend(from.Key, "bob^demo", `{}`).ID
			s.mustSend(from.Key, "bob^demo", `{}`, soon)
			if _, err := s.MarkDelivered(&relay.MarkDelivered{At: time.Now(), Key: bob.Number, ID: id}); err != nil {
				t.Fatal(err)
			}
			s.ack(bob.Key, id, "processing", func(a *relay.Acknowledge) { a.Detail = fmt.Sprint("step ", i) })
			s.mustAck(bob.Key, id, "processing")
			s.mustAck(bob.Key, id, "processing") // a duplicate
			s.mustAck(bob.Key, id, "completed")
		}
	}
	const all = 12 * 5 // with the expiry
	var told []relay.Change
	for late := time.After(time.Minute); len(told) < all; {
		select {
		case c := <-changes:
			if c.New && c.Sender == alice.Mecha.Number {
				c.Freed = false
				told = append(told, c)
			}
		case <-late:
			t.Fatalf("%d changes were told, want %d", len(told), all)
		}
	}
	for _, limit := range []int{1, 2, 7, 1000} {
		var read []relay.Change
		q := relay.ReceiptQuery{Sender: alice.Mecha.Number, Limit: limit}
		for end := false; !end; {
			p, err := s.Receipts(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			read, q.After, end = append(read, p.Changes...), p.Upto, p.End
		}
		if !slices.Equal(read, told) {
			t.Fatalf("pages of %d: read %+v\ntold %+v", limit, read, told)
		}
	}
}
