package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// wantPending counts the pending messages, which must be as many as at least as old as
// each of db.PendingAges.
func (s store) wantPending(oldest time.Duration, older ...int) {
	s.t.Helper()
	p, err := s.CountPending(ctx)
	if err != nil || !slices.Equal(p.Older, older) || p.Oldest.Truncate(time.Second) != oldest {
		s.t.Errorf("pending: %+v, %v; want %v, the oldest %v", p, err, older, oldest)
	}
}

// Pending messages are counted whether or not the mailbox tables have them, and by a
// server that was started later.
func TestPendingMessagesAreCountedByAge(t *testing.T) {
	now := time.Now().Add(10 * 24 * time.Hour).Truncate(time.Second) // the keys are issued now, and positions never go back
	s := mustOpen(t, func(o *db.Options) { o.Now = func() time.Time { return now } })
	from, to := s.mustIssue("from^crew"), s.mustIssue("to^crew")
	send := func(n int, age time.Duration) (ids []relay.MessageID) {
		for i := range n {
			sent, err := s.send(from.Key, to.Mecha.Address, fmt.Sprintf(`{"n":%d}`, i), func(m *relay.SendMessage) { m.At = now.Add(-age) })
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, sent.ID)
		}
		return ids
	}
	s.wantPending(0, 0, 0, 0, 0, 0, 0)
	old := send(3, 8*24*time.Hour)
	send(2, 2*time.Hour)
	send(4, 30*time.Second)
	s.wantPending(8*24*time.Hour, 9, 5, 5, 5, 3, 3)
	if _, err := s.ack(to.Key, old[0], "completed"); err != nil {
		t.Fatal(err)
	}
	s.wantPending(8*24*time.Hour, 8, 4, 4, 4, 2, 2)
	path := s.Path()
	if err := s.Close(); err != nil { // which indexes all
		t.Fatal(err)
	}
	s = mustOpen(t, func(o *db.Options) { o.Path, o.Now = path, func() time.Time { return now.Add(20 * time.Minute) } })
	s.wantPending(8*24*time.Hour+20*time.Minute, 8, 8, 8, 4, 2, 2)
	for _, id := range old[1:] {
		if _, err := s.ack(to.Key, id, "failed"); err != nil {
			t.Fatal(err)
		}
	}
	s.wantPending(2*time.Hour+20*time.Minute, 6, 6, 6, 2, 0, 0)
}
