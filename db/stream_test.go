package db_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// clock is a clock that stands still until it is set.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func (c *clock) option(o *db.Options) { o.Now = c.now }

// stream reads a Mecha's whole incoming stream in pages.
func (s store) stream(q relay.StreamQuery) (ids []relay.MessageID, pages int) {
	s.t.Helper()
	for {
		p, err := s.Stream(ctx, q)
		if err != nil {
			s.t.Fatal(err)
		}
		pages++
		for _, m := range p.Messages {
			if m.Payload == nil && !q.NoPayload {
				s.t.Fatalf("%s came without its payload", m.ID)
			}
			ids = append(ids, m.ID)
		}
		if p.End {
			return ids, pages
		}
		if p.Upto <= q.After {
			s.t.Fatalf("the stream stands still at %d", p.Upto)
		}
		q.After = p.Upto
	}
}

func TestAStreamIsReadInPages(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob := s.mustIssue("alice^x"), s.mustIssue("bob^x")
	var all, open []relay.MessageID
	for i := range 50 {
		id := s.mustSend(alice.Key, "bob^x", fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, strings.Repeat("x", 1000))).ID
		s.mustSend(bob.Key, "alice^x", `{}`) // not for bob
		all = append(all, id)
		if i%3 == 0 {
			s.mustAck(bob.Key, id, "completed")
		} else {
			open = append(open, id)
		}
	}
	for _, c := range []struct {
		q     relay.StreamQuery
		want  []relay.MessageID
		pages int
	}{
		{relay.StreamQuery{Limit: 1000, MaxBytes: 1 << 20}, all, 1},
		{relay.StreamQuery{Limit: 50, MaxBytes: 1 << 20}, all, 2}, // a full page may not be the end
		{relay.StreamQuery{Limit: 7, MaxBytes: 1 << 20}, all, 8},
		{relay.StreamQuery{Limit: 1000, MaxBytes: 5200}, all, 10},
		{relay.StreamQuery{Limit: 1000, MaxBytes: 1}, all, 50}, // at least one message
		{relay.StreamQuery{Limit: 1000, MaxBytes: 1 << 20, PendingOnly: true}, open, 1},
		{relay.StreamQuery{Limit: 4, MaxBytes: 1 << 20, PendingOnly: true}, open, 9},
	} {
		c.q.Mecha = bob.Mecha.Number
		got, pages := s.stream(c.q)
		if !slices.Equal(got, c.want) || pages != c.pages {
			t.Errorf("%+v: %d messages in %d pages, want %d in %d", c.q, len(got), pages, len(c.want), c.pages)
		}
	}
	after, err := s.Cursor(all[19])
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := s.stream(relay.StreamQuery{Mecha: bob.Mecha.Number, After: after, Limit: 10, MaxBytes: 1 << 20}); !slices.Equal(got, all[20:]) {
		t.Errorf("after a cursor: %d messages, want %d", len(got), 30)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := mustOpen(t, clock.option)
	alice, bob := s.mustIssue("alice^x"), s.mustIssue("bob^x")
	inAMinute := func(m *relay.SendMessage) { m.At, m.ExpiresAt = clock.now(), clock.now().Add(time.Minute) }
	var changes []relay.Change
	expired := make(chan struct{}, 10)
	s.OnCommit(func(c *relay.Commit) {
		for _, ch := range c.Changes {
			if ch.State == relay.Expired && ch.New {
				changes = append(changes, ch)
				expired <- struct{}{}
			}
		}
	})
	short := s.mustSend(alice.Key, "bob^x", `{"n":1}`, inAMinute)
	long := s.mustSend(alice.Key, "bob^x", `{"n":2}`)
	done := s.mustSend(alice.Key, "bob^x", `{"n":3}`, inAMinute)
	if _, err := s.ack(bob.Key, done.ID, "completed", func(a *relay.Acknowledge) { a.At = clock.now() }); err != nil {
		t.Fatal(err)
	}

	clock.advance(time.Minute - time.Millisecond)
	if m, _ := s.Message(ctx, bob.Mecha.Number, short.ID); m.State != relay.Queued {
		t.Errorf("before its time it is %s", m.State)
	}
	clock.advance(time.Millisecond)
	if m, _ := s.Message(ctx, bob.Mecha.Number, short.ID); m.State != relay.Expired {
		t.Errorf("at its time it is %s", m.State)
	}
	<-expired // the writer has expired the message
	if len(changes) != 1 || changes[0].ID != short.ID || changes[0].Sender != alice.Mecha.Number || !changes[0].Freed {
		t.Errorf("OnCommit told of %+v", changes)
	}
	_, err := s.ack(bob.Key, short.ID, "completed")
	wantCode(t, err, relay.MessageExpired)
	_, err = s.MarkDelivered(&relay.MarkDelivered{At: clock.now(), Key: bob.Number, ID: short.ID})
	wantCode(t, err, relay.MessageExpired)
	if body, err := s.Payload(ctx, bob.Mecha.Number, short.ID); string(body) != `{"n":1}` {
		t.Errorf("its payload is %q, %v", body, err)
	}
	if m, _ := s.Message(ctx, bob.Mecha.Number, done.ID); m.State != relay.Acknowledged {
		t.Errorf("an acknowledged message became %s", m.State)
	}
	if in, err := s.Inbox(ctx, bob.Mecha.Number); err != nil || in.Pending != 1 || in.Oldest != long.ID {
		t.Errorf("inbox %+v, %v", in, err)
	}
	if got, _ := s.stream(relay.StreamQuery{Mecha: bob.Mecha.Number, Limit: 10, MaxBytes: 1 << 20}); !slices.Equal(got, []relay.MessageID{long.ID, done.ID}) {
		t.Errorf("the stream has %v", got)
	}
	p := s.mustHistory(relay.HistoryQuery{Mecha: alice.Mecha.Number, State: relay.OnlyExpired})
	if len(p.Messages) != 1 || p.Messages[0].ID != short.ID {
		t.Errorf("history of what expired: %v", p.Messages)
	}
}

func TestTheMailboxHasABound(t *testing.T) {
	clock := newClock()
	s := mustOpen(t, clock.option, func(o *db.Options) { o.MaxPending = 10 })
	alice, bob := s.mustIssue("alice^x"), s.mustIssue("bob^x")
	var ids []relay.MessageID
	for i := range 10 {
		ids = append(ids, s.mustSend(alice.Key, "bob^x", `{}`, func(m *relay.SendMessage) {
			m.At = clock.now()
			if i == 0 {
				m.ExpiresAt = clock.now().Add(time.Second)
			}
		}).ID)
	}
	full := func() {
		t.Helper()
		_, err := s.send(alice.Key, "bob^x", `{}`)
		wantCode(t, err, relay.MailboxFull)
	}
	full()
	s.mustSend(bob.Key, "alice^x", `{}`) // other mailboxes have room
	s.mustAck(bob.Key, ids[3], "received")
	full() // still pending
	s.mustAck(bob.Key, ids[3], "completed")
	s.mustSend(alice.Key, "bob^x", `{}`)
	full()
	clock.advance(2 * time.Second) // the first message expires, so its room is free
	s.mustSend(alice.Key, "bob^x", `{}`, func(m *relay.SendMessage) { m.At = clock.now() })
	full()
}

// After a restart, a mailbox is counted right, whichever write comes first.
func TestTheMailboxIsCountedRightAfterARestart(t *testing.T) {
	t.Parallel()
	bound := func(o *db.Options) { o.MaxPending = 10 }
	for name, first := range map[string]func(store, *relay.Key, relay.MessageID){
		"an acknowledgement": func(s store, k *relay.Key, id relay.MessageID) { s.mustAck(k, id, "completed") },
		"progress, then one": func(s store, k *relay.Key, id relay.MessageID) {
			s.mustAck(k, id, "received")
			s.mustAck(k, id, "completed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, bound)
			k := s.mustIssue("alice^x")
			var id relay.MessageID
			for range 10 {
				id = s.mustSend(k.Key, "alice^x", `{}`).ID
			}
			s.Close()
			s = mustOpen(t, bound, func(o *db.Options) { o.Path = s.Path() })
			first(s, k.Key, id)
			s.mustSend(k.Key, "alice^x", `{}`)
			_, err := s.send(k.Key, "alice^x", `{}`)
			wantCode(t, err, relay.MailboxFull)
		})
	}
}

func TestARevokedKeyStaysRevokedWhateverTheClockSays(t *testing.T) {
	clock := newClock()
	s := mustOpen(t, clock.option)
	k := s.mustIssue("alice^x")
	if err := s.Revoke(&relay.RevokeKey{At: clock.now(), ID: k.ID}); err != nil {
		t.Fatal(err)
	}
	clock.advance(-time.Hour)
	_, err := s.Key(ctx, k.Text)
	wantCode(t, err, relay.KeyRevoked)
}

// If the clock was ahead for a while, a restart must not take expired nonces for ones
// that could be replayed.
func TestAClockThatWasAheadDoesNotFillTheNonces(t *testing.T) {
	t.Parallel()
	clock := newClock()
	few := func(o *db.Options) { o.MaxNonces = 5 }
	s := mustOpen(t, clock.option, few)
	k := s.mustIssue("alice^x")
	clock.advance(48 * time.Hour)
	for i := range 20 {
		s.mustSend(k.Key, "alice^x", `{}`, func(m *relay.SendMessage) { m.At, m.Nonce = clock.now(), relay.NonceHash(i+1) })
	}
	clock.advance(-48 * time.Hour)
	s.Close()
	for i := range 2 {
		s = mustOpen(t, clock.option, few, func(o *db.Options) { o.Path = s.Path() })
		if _, err := s.Claim(k.Key, fmt.Sprint("fresh-", i), clock.now()); err != nil {
			t.Fatal(err)
		}
		s.Close()
		clock.advance(3 * time.Hour)
	}
}

// Another process (the command line) changes keys while this one serves.
func TestAnotherProcessRevokes(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	told := make(chan struct{}, 10)
	s.OnKeys(func() { told <- struct{}{} })
	k := s.mustIssue("alice^x")
	<-told
	other, err := db.Open(db.Options{Path: s.Path(), Schema: schema(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := s.Key(ctx, k.Text); err != nil {
		t.Fatal(err)
	}
	if err := other.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID}); err != nil {
		t.Fatal(err)
	}
	for { // OnKeys may call more than once for a change
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Fatal("OnKeys has not called")
		}
		if _, err = s.Key(ctx, k.Text); err != nil {
			break
		}
	}
	wantCode(t, err, relay.KeyRevoked)
	fresh, err := other.Issue(&relay.IssueKey{At: time.Now(), Address: "carol^x"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Key(ctx, fresh.Text); err != nil || got.Mecha.Address != "carol^x" {
		t.Errorf("a key made by another process: %v, %v", got, err)
	}
	s.mustSend(fresh.Key, "alice^x", `{}`)
	_, err = other.Issue(&relay.IssueKey{At: time.Now(), Address: "Carol^X"})
	wantCode(t, err, relay.InvalidAddress)
}

func TestOneIdempotencyKeyMakesOneMessage(t *testing.T) {
	s := mustOpen(t)
	alice := s.mustIssue("alice^x")
	key := s.IdempotencyKey(alice.Mecha.Number, "order-17", []byte("body"))
	other := s.IdempotencyKey(alice.Mecha.Number, "order-17", []byte("other body"))
	var wg sync.WaitGroup
	var replays atomic.Int64
	ids := make([]relay.MessageID, 32)
	for i := range ids {
		wg.Go(func() {
			sent, err := s.send(alice.Key, "alice^x", `{}`, func(m *relay.SendMessage) { m.Idempotency = key })
			if err != nil {
				t.Error(err)
			}
			if ids[i] = sent.ID; sent.Replayed {
				replays.Add(1)
			}
		})
	}
	wg.Wait()
	if slices.Sort(ids); ids[0] != ids[31] || replays.Load() != 31 {
		t.Errorf("%s … %s, %d replays", ids[0], ids[31], replays.Load())
	}
	_, err := s.send(alice.Key, "alice^x", `{}`, func(m *relay.SendMessage) { m.Idempotency = other })
	wantCode(t, err, relay.IdempotencyKeyReused)
	later := func(m *relay.SendMessage) { m.Idempotency, m.At = key, m.At.Add(25*time.Hour) }
	if sent, err := s.send(alice.Key, "alice^x", `{}`, later); err != nil || sent.Replayed {
		t.Errorf("after its 24 hours: %+v, %v", sent, err)
	}
	if p := s.mustHistory(relay.HistoryQuery{Mecha: alice.Mecha.Number}); len(p.Messages) != 2 {
		t.Errorf("%d messages", len(p.Messages))
	}
}
