package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

func toCrews(most int) func(*db.Options) {
	return func(o *db.Options) { o.MaxBroadcast = most }
}

// recipients returns the addresses to which messages went, in their order.
func (s store) recipients(sent relay.Sent, sender relay.IssuedKey) (all []relay.Address) {
	s.t.Helper()
	for _, id := range sent.IDs {
		m, err := s.Message(ctx, sender.Mecha.Number, id)
		if err != nil || m.Conversation != sent.Conversation {
			s.t.Fatalf("%+v, %v", m, err)
		}
		all = append(all, m.To)
	}
	return all
}

func TestAMessageToACrewGoesToAllOfItInOneCommit(t *testing.T) {
	s := mustOpen(t, toCrews(100))
	commits := make(chan []relay.MessageID, 10)
	s.OnCommit(func(c *relay.Commit) {
		var ids []relay.MessageID
		for _, m := range c.Messages {
			ids = append(ids, m.ID)
		}
		commits <- ids
	})
	var want []relay.Address
	sender := s.mustIssue("m50^crew")
	for i := range 101 {
		a := relay.Address(fmt.Sprintf("m%d^crew", i))
		if s.mustIssue(a); a != sender.Mecha.Address {
			want = append(want, a)
		}
	}
	s.mustIssue("outside^crew2")
	s.mustIssue("outside^Crew")
	sent := s.mustSend(sender.Key, "*^crew", `{"n":1}`)
	if got := s.recipients(sent, sender); !slices.Equal(got, want) || sent.ID != sent.IDs[0] || sent.Recipient != 0 {
		t.Errorf("it went to %v, as %+v", got, sent)
	}
	if ids := <-commits; !slices.Equal(ids, sent.IDs) { // the sender's answer does not wait for OnCommit
		t.Errorf("the commit had %v", ids)
	}
	s.mustIssue("one.more^crew")
	_, err := s.send(sender.Key, "*^crew", `{}`)
	if wantCode(t, err, relay.TooManyRecipients); !strings.Contains(err.Error(), "has 101 Mechas besides you") {
		t.Error(err)
	}
}

// Of a message to a crew that was sent with an Idempotency-Key, the first row stays for a
// day. It answers for all, even when the others have been removed.
func TestARetryToACrewAfterSomeWereRemoved(t *testing.T) {
	s := mustOpen(t, toCrews(100))
	sender := s.mustIssue("sender^crew")
	for i := range 5 {
		s.mustIssue(relay.Address(fmt.Sprintf("m%d^crew", i)))
	}
	keyed := func(m *relay.SendMessage) {
		m.Idempotency = s.IdempotencyKey(sender.Mecha.Number, "once", m.Payload)
	}
	first := s.mustSend(sender.Key, "*^crew", `{}`, keyed)
	pruned, err := s.Apply(&relay.PruneMessages{At: time.Now().Add(time.Hour), Before: relay.MaxPosition, Limit: 100})
	if p, ok := pruned.(relay.Pruned); err != nil || !ok || p.Messages != 4 || p.Kept != 1 {
		t.Fatalf("%+v, %v", pruned, err)
	}
	if names, said, _ := found(t, s.Path()); len(names) > 0 {
		t.Error(said)
	}
	s.mustIssue("late^crew")
	again := s.mustSend(sender.Key, "*^crew", `{}`, keyed)
	if !again.Replayed || !slices.Equal(again.IDs, first.IDs) || again.Conversation != first.Conversation {
		t.Errorf("%+v, want %+v", again, first)
	}
	goesOn := s.mustSend(sender.Key, "*^crew", `{}`, func(m *relay.SendMessage) { m.Conversation = first.Conversation })
	if len(goesOn.IDs) != 6 || goesOn.Conversation != first.Conversation {
		t.Errorf("%+v", goesOn)
	}
	if names, said, _ := found(t, s.Path()); len(names) > 0 {
		t.Error(said)
	}
}

// BenchmarkSendToACrew sends to a crew of 101. Compare its msg/s with BenchmarkSend/256,
// which shares commits as well.
func BenchmarkSendToACrew(b *testing.B) {
	s := mustOpen(b, toCrews(100))
	sender := s.mustIssue("sender^bench")
	for i := range 100 {
		s.mustIssue(relay.Address(fmt.Sprintf("m%d^bench", i)))
	}
	payload := fmt.Sprintf(`{"text":"%0500d"}`, 1)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		s.mustSend(sender.Key, "*^bench", payload)
	}
	b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
