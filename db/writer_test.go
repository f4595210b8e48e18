package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"relay/db/internal/dictionary"
	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/internal/readers"
	"relay/db/relay"
	"relay/db/scratch"
)

// block is a local write that holds the writer until it is released, so that writes
// queued meanwhile come into one transaction.
type block struct{ entered, release chan struct{} }

func (b block) Apply(*engine.Tx) error {
	close(b.entered)
	<-b.release
	return nil
}

func (block) Size() int { return 0 }

// poison is a local write that writes something, and then fails.
type poison struct{ *dictionary.Dictionary }

var errPoison = errors.New("poison")

func (p poison) Apply(t *engine.Tx) error {
	if _, err := p.Intern(t, "left behind"); err != nil {
		return err
	}
	return errPoison
}

func (poison) Size() int { return 0 }

// wait queues a local write and waits for its commit.
func (d *DB) wait(c engine.LocalWrite) error {
	done := make(chan error, 1)
	d.w.Submit(c, 0, func(err error) { done <- err })
	return <-done
}

// nothing is a local write that does nothing: when it returns, the writes before it have been committed.
type nothing struct{}

func (nothing) Apply(*engine.Tx) error { return nil }
func (nothing) Size() int              { return 0 }

func mustIssue(t testing.TB, d *DB, a relay.Address) *relay.Key {
	t.Helper()
	k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: a})
	if err != nil {
		t.Fatal(err)
	}
	return k.Key
}

func message(k *relay.Key, to relay.Address, payload string) *relay.SendMessage {
	m := &relay.SendMessage{At: time.Now(), Key: k.Number, To: to, Payload: []byte(payload), Nonce: 1}
	if err := m.Validate(); err != nil {
		panic(err)
	}
	return m
}

func TestAWriteThatFailsLeavesNothingAndDisturbsNobody(t *testing.T) {
	d := openHere(t)
	k := mustIssue(t, d, "a^b")
	b := block{make(chan struct{}), make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() { d.wait(b) })
	<-b.entered

	const n = 20
	results := make(chan error, n)
	sent := make([]relay.Sent, n)
	for i := range n {
		engine.Then(d.w, message(k, "a^b", `{}`), func(s relay.Sent, err error) { sent[i] = s; results <- err })
		if i == n/2 {
			d.w.Submit(poison{d.Dictionary}, 0, func(err error) {
				if relay.ErrorCode(err) != relay.Internal || !errors.Is(err, errPoison) {
					t.Errorf("the poisoned write got %v", err)
				}
			})
		}
	}
	close(b.release)
	for range n {
		if err := <-results; err != nil {
			t.Errorf("a neighbour of the poisoned write got %v", err)
		}
	}
	wg.Wait()

	p, err := d.History(t.Context(), relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: 100})
	if err != nil || len(p.Messages) != n {
		t.Fatalf("%d messages in the store, want %d (%v)", len(p.Messages), n, err)
	}
	for i, m := range p.Messages {
		if m.ID != sent[i].ID {
			t.Errorf("message %d is %s; its sender was told %s", i, m.ID, sent[i].ID)
		}
	}
	err = d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
		left, err := x.C.Row(nil, "SELECT 1 FROM word WHERE text = 'left behind'")
		if left {
			t.Error("the poisoned write left something behind")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Later jobs of the same transaction do not find a removed Mecha, though its number
// was cached.
func TestARemovalHoldsWithinItsTransaction(t *testing.T) {
	d := openHere(t)
	k := mustIssue(t, d, "a^b")
	mustIssue(t, d, "c^d")
	if _, err := d.Send(message(k, "c^d", `{}`)); err != nil { // from now on its number is cached
		t.Fatal(err)
	}
	b := block{make(chan struct{}), make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() { d.wait(b) })
	<-b.entered
	got := make(chan error, 6)
	send := func(payload string) {
		engine.Then(d.w, message(k, "c^d", payload), func(_ relay.Sent, err error) { got <- err })
	}
	send(`{"n":1}`)
	engine.Then(d.w, &relay.RemoveMecha{At: time.Now(), Address: "c^d"}, func(_ engine.None, err error) { got <- err })
	send(`{"n":2}`)
	d.PutProfileThen(&relay.PutProfile{At: time.Now(), Address: "c^d"}, func(err error) { got <- err })
	d.PutProfileThen(&relay.PutProfile{At: time.Now(), Address: "c^d", Register: true}, func(err error) { got <- err })
	send(`{"n":3}`)
	close(b.release)
	wg.Wait()
	for i, want := range []relay.Code{"", "", relay.RecipientNotFound, relay.MechaNotFound, "", ""} {
		if err := <-got; relay.ErrorCode(err) != want {
			t.Errorf("write %d: %v, want %q", i, err, want)
		}
	}
	if _, err := d.Send(message(k, "c^d", `{}`)); err != nil {
		t.Error(err)
	}
}

// A word that a transaction made must not be cached if the transaction is rolled back,
// because its number will get another meaning.
func TestWordsOfARolledBackTransactionAreForgotten(t *testing.T) {
	d := openHere(t)
	k := mustIssue(t, d, "a^b")
	sent, err := d.Send(message(k, "a^b", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	b := block{make(chan struct{}), make(chan struct{})}
	go d.wait(b)
	<-b.entered
	done := make(chan error, 3)
	for _, status := range []string{"step_a", "step_b"} { // the second reads the word of the first
		a := &relay.Acknowledge{At: time.Now(), Key: k.Number, ID: sent.ID, Status: status, ClientTS: "2026-01-01T00:00:00Z"}
		d.AcknowledgeThen(a, func(_ relay.AckOutcome, err error) { done <- err })
	}
	d.w.Submit(poison{d.Dictionary}, 0, func(error) { done <- nil })
	close(b.release)
	for range 3 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	var words []string
	err = d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
		r := x.C.Query("SELECT text FROM word WHERE text LIKE 'step%' ORDER BY id")
		for r.Next() {
			words = append(words, r.Text(0))
		}
		return r.Close()
	})
	if err != nil || !slices.Equal(words, []string{"step_a", "step_b"}) {
		t.Errorf("the file has the words %v (%v)", words, err)
	}
}

// An acknowledgement is judged by its own time. By the writer's clock, the message has
// expired.
func TestAnAcknowledgementIsJudgedByItsOwnTime(t *testing.T) {
	began := time.Now()
	d := openHere(t, func(o *Options) { o.Now = func() time.Time { return began.Add(120 * time.Second) } })
	k := mustIssue(t, d, "a^b")
	m := message(k, "a^b", `{}`)
	m.At, m.ExpiresAt = began, began.Add(60*time.Second)
	sent, err := d.Send(m)
	if err != nil {
		t.Fatal(err)
	}
	a := &relay.Acknowledge{At: began.Add(60 * time.Second), Key: k.Number, ID: sent.ID, Status: "completed", ClientTS: "2026-01-01T00:00:00Z"}
	if _, err := d.Acknowledge(a); relay.ErrorCode(err) != relay.MessageExpired {
		t.Errorf("an ack of the time at which it expires got %v", err)
	}
	a.At = began.Add(time.Second)
	if out, err := d.Acknowledge(a); err != nil || out.State != relay.Acknowledged {
		t.Errorf("an ack of a second after it was sent: %+v, %v", out, err)
	}
}

// A revoked key makes no writes after its revocation in the commit order, even if they
// were accepted before it.
func TestARevokedKeyWritesNothingMore(t *testing.T) {
	d := openHere(t)
	k, other := mustIssue(t, d, "a^b"), mustIssue(t, d, "c^d")
	b := block{make(chan struct{}), make(chan struct{})}
	go d.wait(b)
	<-b.entered
	got := make(chan error, 5)
	send := func(k *relay.Key) {
		engine.Then(d.w, message(k, "c^d", `{}`), func(_ relay.Sent, err error) { got <- err })
	}
	send(k)
	engine.Then(d.w, &relay.RevokeKey{At: time.Now(), ID: k.ID}, func(_ *relay.Key, err error) { got <- err })
	send(k)
	d.PutProfileThen(&relay.PutProfile{At: time.Now(), Key: k.Number, Address: "a^b"}, func(err error) { got <- err })
	send(other)
	close(b.release)
	for i, want := range []relay.Code{"", "", relay.KeyRevoked, relay.KeyRevoked, ""} {
		if err := <-got; relay.ErrorCode(err) != want {
			t.Errorf("write %d: %v, want %q", i, err, want)
		}
	}
}

// Order has one source: the answers to senders, the calls of OnCommit and the
// history must agree, and times must not decrease, even if the clock is set.
func TestOneOrder(t *testing.T) {
	t.Parallel()
	var announced []relay.MessageID
	d := openHere(t)
	d.OnCommit(func(c *relay.Commit) {
		for _, m := range c.Messages {
			announced = append(announced, m.ID)
		}
	})
	k := mustIssue(t, d, "a^b")
	const senders, each = 16, 50
	var mu sync.Mutex
	told := map[relay.MessageID]bool{}
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				m := message(k, "a^b", `{}`)
				m.At = time.Now().Add(time.Duration((s*i)%7-3) * time.Minute) // a clock that jumps
				sent, err := d.Send(m)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				told[sent.ID] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := d.wait(nothing{}); err != nil { // by then OnCommit has been called for the last commit
		t.Fatal(err)
	}
	p, err := d.History(t.Context(), relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: senders*each + 1})
	if err != nil || len(p.Messages) != senders*each || len(told) != senders*each || len(announced) != senders*each {
		t.Fatalf("history %d, told %d, announced %d, want %d each (%v)", len(p.Messages), len(told), len(announced), senders*each, err)
	}
	for i, m := range p.Messages {
		if !told[m.ID] || announced[i] != m.ID {
			t.Fatalf("message %d: history has %s, OnCommit told of %s, told: %v", i, m.ID, announced[i], told[m.ID])
		}
		if i > 0 && (m.ID <= p.Messages[i-1].ID || m.CreatedAt.Before(p.Messages[i-1].CreatedAt)) {
			t.Fatalf("message %d goes back: %s %s after %s %s", i, m.ID, m.CreatedAt, p.Messages[i-1].ID, p.Messages[i-1].CreatedAt)
		}
	}
}

func TestAFullQueueIsRefused(t *testing.T) {
	t.Parallel()
	d := openHere(t)
	b := block{make(chan struct{}), make(chan struct{})}
	go d.wait(b)
	<-b.entered
	last := make(chan error, engine.MaxQueue)
	for range engine.MaxQueue {
		d.w.Submit(nothing{}, 0, func(err error) { last <- err })
	}
	if err := d.wait(nothing{}); relay.ErrorCode(err) != relay.Overloaded {
		t.Errorf("a write beyond the queue's bound got %v", err)
	}
	close(b.release)
	for range engine.MaxQueue {
		if err := <-last; err != nil {
			t.Fatal(err)
		}
	}
}

// A server waits for the lock as long as it was told, even after its start has copied the log
// without waiting for anybody.
func TestAServerWaitsForTheLockAsLongAsItWasTold(t *testing.T) {
	t.Parallel()
	for told, want := range map[time.Duration]int64{0: 10_000, 3 * time.Second: 3000} {
		d := openHere(t, func(o *Options) { o.Serve, o.LockWait = true, told })
		var wait int64
		var failed error
		d.w.Enqueue(&engine.LocalJob{LocalWrite: poke{}, Done: func(error) { wait, failed = d.w.C.Number("PRAGMA busy_timeout") }}, 0)
		if err := d.Close(); err != nil || failed != nil || wait != want {
			t.Errorf("told to wait %v, it waits %d ms, want %d; %v, %v", told, wait, want, failed, err)
		}
	}
}

func TestClosingFinishesWhatIsQueued(t *testing.T) {
	d := openHere(t)
	k := mustIssue(t, d, "a^b")
	b := block{make(chan struct{}), make(chan struct{})}
	go d.wait(b)
	<-b.entered
	result := make(chan error, 1)
	engine.Then(d.w, message(k, "a^b", `{}`), func(_ relay.Sent, err error) { result <- err })
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	close(b.release)
	if err := <-result; err != nil {
		t.Errorf("a queued write got %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := d.wait(nothing{}); relay.ErrorCode(err) != relay.ShuttingDown {
		t.Errorf("a write after Close got %v", err)
	}
	if _, err := d.Inbox(t.Context(), k.Mecha.Number); relay.ErrorCode(err) != relay.ShuttingDown {
		t.Errorf("a read after Close got %v", err)
	}
}

// Close may be called by several goroutines at once, and again.
func TestClosingTwiceIsClosingOnce(t *testing.T) {
	d := openHere(t, func(o *Options) { o.Serve = true })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// The log is copied while writes continue, and does not grow with them.
func TestTheLogStaysSmall(t *testing.T) {
	if !scratch.Long(t) {
		t.Skip("writes 60 MB, beside readers that never pause: -long")
	}
	d := openHere(t)
	k := mustIssue(t, d, "a^b")
	payload := fmt.Sprintf(`{"text":"%0240000d"}`, 1)
	most := int64(0)
	var wg, reading sync.WaitGroup
	var mu sync.Mutex
	stop := make(chan struct{})
	read := func(x *engine.Rx) error {
		here := func(_ context.Context, f func(*engine.Rx) error) error { return f(x) }
		_, err := messages.ReadPage(t.Context(), here, relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: 1000, Type: "normal"})
		return err
	}
	// Reads that overlap leave no moment in which SQLite could restart the log.
	for _, own := range []readers.Turn{d.w.Readers.Scan(1), d.w.Readers.Scan(2), d.w.Readers.Point(1)} {
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := d.w.ReadIn(t.Context(), own, read); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 8 {
		wg.Go(func() {
			for range 32 {
				if _, err := d.Send(message(k, "a^b", payload)); err != nil {
					t.Error(err)
					return
				}
				size := fileSize(d.w.Path + "-wal")
				mu.Lock()
				most = max(most, size)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	close(stop)
	reading.Wait()
	if most > 48<<20 { // maxLogPages and a transaction
		t.Errorf("the log grew to %d MiB while 60 MB were written", most>>20)
	}
	t.Logf("the log's largest size: %.1f MiB", float64(most)/(1<<20))
}

// poke is a local write that does nothing.
type poke struct{}

func (poke) Apply(*engine.Tx) error { return nil }
func (poke) Size() int              { return 0 }
