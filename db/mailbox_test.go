package db_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"relay/db"
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/look"
	"relay/db/relay"
	"relay/db/scratch"
)

// known is a message as it should be.
type known struct {
	id           relay.MessageID
	from, to     relay.MechaNumber
	done         bool
	conversation relay.ConversationID
	question     relay.MessageID // "": it answers none
}

// wantMailboxes compares every way to ask for the messages of Mechas and conversations with the
// known ones.
func (s store) wantMailboxes(all []known, mechas []relay.IssuedKey) {
	s.t.Helper()
	s.wantConversations(all)
	for _, k := range mechas {
		id := k.Mecha.Number
		pick := func(f func(known) bool) (ids []relay.MessageID) {
			for _, m := range all {
				if f(m) {
					ids = append(ids, m.id)
				}
			}
			return ids
		}
		in := func(m known) bool { return m.to == id }
		out := func(m known) bool { return m.from == id }
		pending := func(m known) bool { return in(m) && !m.done }
		for _, c := range []struct {
			q    relay.HistoryQuery
			want []relay.MessageID
		}{
			{relay.HistoryQuery{}, pick(func(m known) bool { return in(m) || out(m) })},
			{relay.HistoryQuery{Direction: relay.In}, pick(in)},
			{relay.HistoryQuery{Direction: relay.Out}, pick(out)},
			{relay.HistoryQuery{Direction: relay.In, State: relay.OnlyPending}, pick(pending)},
			{relay.HistoryQuery{Direction: relay.In, State: relay.OnlyAcknowledged}, pick(func(m known) bool { return in(m) && m.done })},
		} {
			c.q.Mecha = id
			for _, limit := range []int{3, 1000} {
				c.q.Limit = limit
				if got := s.pages(c.q); !slices.Equal(got, c.want) {
					s.t.Fatalf("Mecha %d, %+v: %d messages, want %d\n%v\n%v", id, c.q, len(got), len(c.want), got, c.want)
				}
			}
			c.q.Descending = true
			got := s.pages(c.q)
			if slices.Reverse(got); !slices.Equal(got, c.want) {
				s.t.Fatalf("Mecha %d, %+v: %d messages, want %d", id, c.q, len(got), len(c.want))
			}
		}
		if got, _ := s.stream(relay.StreamQuery{Mecha: id, Limit: 4, MaxBytes: 1 << 20}); !slices.Equal(got, pick(in)) {
			s.t.Fatalf("Mecha %d: a stream of %d messages, want %d", id, len(got), len(pick(in)))
		}
		box, err := s.Inbox(ctx, id)
		if waiting := pick(pending); err != nil || box.Pending != len(waiting) || len(waiting) > 0 && (box.Oldest != waiting[0] || box.Newest != waiting[len(waiting)-1]) {
			s.t.Fatalf("Mecha %d: %+v, %v; want %d", id, box, err, len(waiting))
		}
	}
}

// pages reads a history to its end.
func (s store) pages(q relay.HistoryQuery) (ids []relay.MessageID) {
	s.t.Helper()
	for {
		p := s.mustHistory(q)
		for _, m := range p.Messages {
			ids = append(ids, m.ID)
		}
		if !p.More {
			return ids
		}
		if q.Descending {
			q.Before = p.Next
		} else {
			q.After = p.Next
		}
	}
}

// wantCounts compares the totals.
func wantCounts(t testing.TB, path string, all []known) {
	t.Helper()
	in, err := look.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	sent, received, pending := 0, 0, 0
	err = in.Point(t.Context(), func(x *engine.Rx) error {
		_, err := x.C.Row(func(r *sqlite.Rows) { sent, received, pending = int(r.Int(0)), int(r.Int(1)), int(r.Int(2)) },
			"SELECT count(s.id), count(r.id), count(*) FILTER (WHERE state < 2 AND (expires_at IS NULL OR expires_at > ?)) "+
				"FROM message m LEFT JOIN mecha s ON s.id = m.sender LEFT JOIN mecha r ON r.id = m.recipient", x.Now.UnixMilli())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	waiting := len(slices.DeleteFunc(slices.Clone(all), func(m known) bool { return m.done }))
	if sent != len(all) || received != len(all) || pending != waiting {
		t.Errorf("%d sent, %d received, %d pending; want %d and %d", sent, received, pending, len(all), waiting)
	}
}

// A Mecha's messages are found at every moment, whether they are indexed or not: by the
// server, by another process, after a stop, and after a kill. A copy of the files takes
// the place of a kill.
func TestMessagesThatAreNotIndexedYetAreFound(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	mechas := s.mustIssueSome(5)
	random := rand.New(rand.NewPCG(1, 2))
	var all []known
	for round := range scratch.Amount(t, 6, 30) {
		for range random.IntN(9) {
			all = append(all, s.mustSendAmong(mechas, all, random))
		}
		ack := func(n int) {
			for range min(n, len(all)) {
				s.mustComplete(&all[len(all)-1-random.IntN(min(len(all), 20))], mechas)
			}
		}
		ack(random.IntN(6))
		s.wantMailboxes(all, mechas)
		switch round % 6 {
		case 0:
			s.wantForOthers(all, mechas)
		case 2:
			wantSound(t, s.Path())
		case 1, 3:
			s = s.killed()
			s.wantMailboxes(all, mechas)
			ack(5) // of a segment that may have been indexed in part
			s.wantMailboxes(all, mechas)
		case 5:
			s = s.stopped(len(all))
			s.wantMailboxes(all, mechas)
		}
	}
}

// mustIssueSome registers so many Mechas.
func (s store) mustIssueSome(n int) (mechas []relay.IssuedKey) {
	s.t.Helper()
	for i := range n {
		mechas = append(mechas, s.mustIssue(relay.Address(fmt.Sprintf("m%d^x", i))))
	}
	return mechas
}

// mustComplete acknowledges a message for its recipient, one of the Mechas.
func (s store) mustComplete(m *known, mechas []relay.IssuedKey) {
	s.t.Helper()
	to := slices.IndexFunc(mechas, func(k relay.IssuedKey) bool { return k.Mecha.Number == m.to })
	s.mustAck(mechas[to].Key, m.id, "completed")
	m.done = true
}

// wantForOthers is wantMailboxes for another process.
func (s store) wantForOthers(all []known, mechas []relay.IssuedKey) {
	s.t.Helper()
	other := mustOpen(s.t, func(o *db.Options) { o.Path, o.Create, o.Serve = s.Path(), false, false })
	other.wantMailboxes(all, mechas)
	wantCounts(s.t, s.Path(), all)
	wantAnswers(s.t, s.Path(), all)
	other.Close()
}

// killed opens the files as a killed server leaves them: a copy.
func (s store) killed() store {
	s.t.Helper()
	path := s.copied()
	return mustOpen(s.t, func(o *db.Options) { o.Path, o.Create = path, false })
}

// copied copies the files as they are, as a killed server would leave them.
func (s store) copied() (path string) {
	s.t.Helper()
	copied := filepath.Join(s.t.TempDir(), "relay.db")
	for _, end := range []string{"", "-wal"} {
		if err := os.WriteFile(copied+end, content(s.t, s.Path()+end), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return copied
}

// stopped stops the server and opens the file again. The file has so many messages.
func (s store) stopped(messages int) store {
	s.t.Helper()
	s.Close()
	wantSound(s.t, s.Path())
	wantAllIndexed(s.t, s.Path(), messages)
	return mustOpen(s.t, func(o *db.Options) { o.Path, o.Create = s.Path(), false })
}

func wantSound(t testing.TB, path string) {
	t.Helper()
	if _, said, r := found(t, path); r.Faults > 0 {
		t.Fatal(said)
	}
}

// A stopped server has indexed all messages.
func wantAllIndexed(t testing.TB, path string, n int) {
	t.Helper()
	d := byHand(t, path)
	defer d.Close()
	var received, sent, joined, reply, after int
	err := d.QueryRow(`SELECT (SELECT count(*) FROM received), (SELECT count(*) FROM sent),
		(SELECT count(*) FROM message WHERE conversation IS NOT NULL) - (SELECT count(*) FROM joined),
		(SELECT count(*) FROM message WHERE in_reply_to IS NOT NULL) - (SELECT count(*) FROM reply),
		(SELECT count(*) FROM message WHERE position > (SELECT value FROM setting WHERE name = 'indexed_upto'))`).Scan(&received, &sent, &joined, &reply, &after)
	if err != nil || received != n || sent != n || joined != 0 || reply != 0 || after != 0 {
		t.Fatalf("of %d messages %d and %d are indexed, %d and %d are missing in joined and reply, %d are behind; %v", n, received, sent, joined, reply, after, err)
	}
}

// Readers that follow a cursor get every message once, in order, while messages are
// sent, acknowledged and indexed.
func TestReadersMissNothingThatIsBeingIndexed(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	mechas := s.mustIssueSome(4)
	each, commits := scratch.Amount(t, 30, 80), s.commits()
	var sending, reading sync.WaitGroup
	var mu sync.Mutex
	of := map[relay.MechaNumber]map[relay.MessageID]bool{} // the messages that each has sent or received
	for i, from := range mechas {
		of[from.Mecha.Number] = map[relay.MessageID]bool{}
		sending.Go(func() {
			for n := range each {
				to := mechas[(i+n)%len(mechas)]
				sent, err := s.send(from.Key, to.Mecha.Address, `{}`)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				of[from.Mecha.Number][sent.ID], of[to.Mecha.Number][sent.ID] = true, true
				mu.Unlock()
				if n%3 == 0 {
					if _, err := s.ack(to.Key, sent.ID, "completed"); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	sent := make(chan struct{})
	for _, k := range mechas {
		reading.Go(func() {
			got := s.follow(relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: 7}, commits, sent)
			mu.Lock()
			defer mu.Unlock()
			if !maps.Equal(got, of[k.Mecha.Number]) {
				t.Errorf("Mecha %d: %d messages, want %d", k.Mecha.Number, len(got), len(of[k.Mecha.Number]))
			}
		})
	}
	sending.Wait()
	close(sent)
	reading.Wait()
}

// commits tells those who wait of each commit.
type commits struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next one
}

func (s store) commits() *commits {
	c := &commits{next: make(chan struct{})}
	s.OnCommit(func(*relay.Commit) {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.next)
		c.next = make(chan struct{})
	})
	return c
}

// wait returns what is closed at the next commit. In the long form nobody waits: what it gives is closed.
func (c *commits) wait(t testing.TB) <-chan struct{} {
	if scratch.Long(t) {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// follow reads a history until all has been sent, and wants each message once and in order. It
// reads again at each commit, and in the long form all the time.
func (s store) follow(q relay.HistoryQuery, c *commits, sent <-chan struct{}) map[relay.MessageID]bool {
	got := map[relay.MessageID]bool{}
	for last := false; ; {
		next := c.wait(s.t)
		p, err := s.History(ctx, q)
		if err != nil {
			s.t.Error(err)
			return got
		}
		for _, m := range p.Messages {
			if got[m.ID] || m.ID <= q.After {
				s.t.Errorf("%s came twice, or late", m.ID)
			}
			got[m.ID] = true
		}
		q.After = p.Next
		if p.More {
			continue
		}
		if last {
			return got
		}
		select {
		case <-sent:
			last = true
		case <-next:
		}
	}
}
