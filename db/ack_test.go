package db_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
)

// tellChanges returns the changes that the listeners are told from now on. It has room for
// 3000.
func (s store) tellChanges() <-chan relay.Change {
	all := make(chan relay.Change, 3000)
	s.OnCommit(func(c *relay.Commit) {
		for _, change := range c.Changes {
			all <- change
		}
	})
	return all
}

// A client may say `processing` again and again, as a sign of life. Only the first one
// is written and told to the sender; but each frees the message's place in a sync window.
func TestARepeatedAcknowledgementIsADuplicate(t *testing.T) {
	s := mustOpen(t)
	changes := s.tellChanges()
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
	id := s.mustSend(alice.Key, "bob^demo", `{}`).ID
	at := func(client string) func(*relay.Acknowledge) {
		return func(a *relay.Acknowledge) { a.ClientTS = client }
	}
	detail := func(text string) func(*relay.Acknowledge) {
		return func(a *relay.Acknowledge) { a.Detail = text }
	}
	for i, step := range []struct {
		status    string
		detail    string
		duplicate bool
	}{
		{"processing", "", false}, {"processing", "", true}, {"Processing", "", true},
		{"processing", "half", false}, {"processing", "half", true}, {"received", "half", false}, {"processing", "half", false},
		{"seen", "", false}, {"seen", "", true}, {"processing", "half", false},
		{"failed", "why", false}, {"failed", "other", true},
	} {
		out, err := s.ack(bob.Key, id, step.status, at(fmt.Sprintf("2026-01-01T00:00:%02dZ", i)), detail(step.detail))
		if err != nil || out.Duplicate != step.duplicate {
			t.Fatalf("step %d: %+v, %v", i, out, err)
		}
		if duplicateTS := out.ClientTS != fmt.Sprintf("2026-01-01T00:00:%02dZ", i); duplicateTS != step.duplicate {
			t.Errorf("step %d: client_ts %s", i, out.ClientTS)
		}
		if c := <-changes; c.New == step.duplicate || !c.Freed {
			t.Errorf("step %d: change %+v", i, c)
		}
	}
	m, err := s.Message(ctx, bob.Mecha.Number, id)
	if err != nil || m.Ack.ClientTS != "2026-01-01T00:00:10Z" {
		t.Errorf("%+v, %v", m, err)
	}
}

// Acknowledgements that are not final are bounded, for each is a row and a receipt. A
// final one is always taken.
func TestAMessageTakesAThousandAcknowledgementsThatAreNotFinal(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	changes := s.tellChanges()
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
	told := 0
	for _, delivered := range []bool{false, true} { // the mark does not count
		told += 1000
		id := s.mustSend(alice.Key, "bob^demo", `{}`).ID
		if delivered {
			if _, err := s.MarkDelivered(&relay.MarkDelivered{At: time.Now(), Key: bob.Number, ID: id}); err != nil {
				t.Fatal(err)
			}
			told++
		}
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				word := []string{"processing", "received", "seen"}[i%3]
				if _, err := s.ack(bob.Key, id, word, func(a *relay.Acknowledge) { a.Detail = fmt.Sprint(i) }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, word := range []string{"processing", "seen"} {
			_, err := s.ack(bob.Key, id, word)
			wantCode(t, err, relay.TooManyAcks)
			for range told {
				<-changes
			}
			if c := <-changes; c.New || !c.Freed {
				t.Errorf("change %+v", c)
			}
			told = 0
		}
		m, err := s.Message(ctx, bob.Mecha.Number, id)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := s.ack(bob.Key, id, m.Ack.Status, func(a *relay.Acknowledge) { a.Detail = m.Ack.Detail }); err != nil || !out.Duplicate {
			t.Errorf("the latest one again: %+v, %v", out, err)
		}
		s.mustAck(bob.Key, id, "completed")
		told += 2
	}
}

// BenchmarkAcknowledge acknowledges from 64 goroutines: each message once; one message
// with the same word; and one message that takes no more.
func BenchmarkAcknowledge(b *testing.B) {
	for _, name := range []string{"each", "progress", "again", "refused"} {
		b.Run(name, func(b *testing.B) {
			s := mustOpen(b)
			alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
			n := 1
			if name == "each" || name == "progress" {
				n = b.N
			}
			ids := make([]relay.MessageID, n)
			parallel(n, func(i int) { ids[i] = s.mustSend(alice.Key, "bob^demo", `{}`).ID })
			if name == "refused" {
				parallel(1000, func(i int) {
					s.ack(bob.Key, ids[0], "processing", func(a *relay.Acknowledge) { a.Detail = fmt.Sprint(i) })
				})
			}
			b.ResetTimer()
			parallel(b.N, func(i int) {
				switch name {
				case "each":
					s.ack(bob.Key, ids[i], "completed")
				case "progress":
					s.ack(bob.Key, ids[i], "received")
					s.ack(bob.Key, ids[i], "processing")
				default:
					s.ack(bob.Key, ids[0], "processing")
				}
			})
		})
	}
}

func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < n; i += 64 {
				f(i)
			}
		})
	}
	wg.Wait()
}
